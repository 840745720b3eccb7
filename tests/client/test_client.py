import time

import grpc
import pytest
from grpc_status import rpc_status

from modnorm import errors
from modnorm.client import calls as calling
from modnorm.client import watch as watching
from modnorm.client.calls import LabCalls
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto
from modnorm.wire.status import to_status
from services.aggregator.experiments.upstream_services import MODEL_SECONDS


@pytest.fixture
def connect(serve):
    clients: list[LabCalls] = []

    def open_client(service):
        clients.append(LabCalls(serve(service), timeout=10, patience=10))
        return clients[-1]

    yield open_client
    for client in clients:
        client.close()


def refuse(context, error):
    context.abort_with_status(rpc_status.to_status(to_status(error)))


def test_a_submission_carries_the_spec_and_the_request_id(connect, servicer, spec):
    def answer(request, context):
        assert context.time_remaining() is not None
        return experiments.CreateExperimentResponse(
            experiment=experiments.Experiment(
                id="e1", request_id=request.request_id, spec=request.spec
            )
        )

    client = connect(servicer(CreateExperiment=answer))
    experiment = client.submit(spec, "mine")
    assert experiment.request_id == "mine"
    assert spec_from_proto(experiment.spec) == spec
    assert client.submit(spec).request_id != client.submit(spec).request_id


def test_the_error_that_the_service_met_is_raised(connect, servicer, spec):
    error = errors.InvalidInputError("no task 'x'", field="task.name", remedy="one of countdown")

    def answer(request, context):
        refuse(context, error)

    with pytest.raises(errors.InvalidInputError) as raised:
        connect(servicer(CreateExperiment=answer)).submit(spec)
    assert str(raised.value) == str(error)


def test_an_unavailable_server_is_asked_again(connect, servicer):
    calls: list[str] = []

    def answer(request, context):
        calls.append(request.id)
        if len(calls) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return experiments.GetExperimentResponse(experiment=experiments.Experiment(id=request.id))

    assert connect(servicer(GetExperiment=answer)).get("e1").id == "e1"
    assert calls == ["e1"] * 3


def test_a_server_that_is_not_there_is_unavailable(free_address):
    with (
        LabCalls(free_address, timeout=1) as client,
        pytest.raises(errors.UnavailableError) as raised,
    ):
        client.get("e1")
    assert raised.value.remedy


def test_a_submission_that_takes_long_can_be_repeated(serve, servicer, spec, monkeypatch):
    asked: list[str] = []

    def answer(request, context):
        asked.append(request.request_id)
        if len(asked) == 1:
            time.sleep(1.0)
        return experiments.CreateExperimentResponse(
            experiment=experiments.Experiment(request_id=request.request_id)
        )

    monkeypatch.setattr(calling, "_SUBMIT_SECONDS", 0.4)
    with LabCalls(serve(servicer(CreateExperiment=answer)), timeout=0.4) as client:
        with pytest.raises(errors.UnavailableError) as raised:
            client.submit(spec)
        assert raised.value.message == "the server did not answer in time"
        assert raised.value.remedy is not None
        assert f"submit again with the request id {asked[0]}" in raised.value.remedy
        assert client.submit(spec, asked[0]).request_id == asked[0]


def test_a_submission_waits_longer_than_the_lab_does_for_the_model(connect, servicer, spec):
    left: list[float] = []

    def answer(request, context):
        left.append(context.time_remaining())
        return experiments.CreateExperimentResponse()

    connect(servicer(CreateExperiment=answer)).submit(spec)
    assert left[0] > MODEL_SECONDS


def test_a_server_that_is_slow_is_not_called_absent(serve, servicer):
    def answer(request, context):
        time.sleep(1.0)
        return experiments.GetExperimentResponse()

    with (
        LabCalls(serve(servicer(GetExperiment=answer)), timeout=0.3) as client,
        pytest.raises(errors.UnavailableError, match="did not answer in time") as raised,
    ):
        client.get("e1")
    assert "busy" in str(raised.value)
    assert "running" not in str(raised.value)


def test_pages_are_joined_in_order(connect, servicer):
    def answer(request, context):
        assert (request.population, request.ensemble_size) == (4, 2)
        start = int(request.page_token or 0)
        return experiments.ListVotesResponse(
            votes=[experiments.Vote(row=row) for row in range(start, start + 3)],
            next_page_token=str(start + 3) if start < 6 else "",
        )

    votes = connect(servicer(ListVotes=answer)).votes("e1", 4, 2)
    assert [vote.row for vote in votes] == list(range(9))


def test_answers_are_of_the_candidate_and_the_split(connect, servicer):
    def answer(request, context):
        assert request.candidate == -1
        assert request.split == evaluation.SPLIT_HELDOUT
        return experiments.ListAnswersResponse(answers=[evaluation.Answer(row=0)])

    found = connect(servicer(ListAnswers=answer)).answers("e1", -1, evaluation.SPLIT_HELDOUT)
    assert [answer.row for answer in found] == [0]


def test_an_artifact_is_the_chunks_together(connect, servicer):
    def answer(request, context):
        yield experiments.GetArtifactResponse(chunk=b"{}")
        yield experiments.GetArtifactResponse(chunk=b"\n")

    kind = experiments.ARTIFACT_KIND_SCALE_MAP
    assert connect(servicer(GetArtifact=answer)).artifact("e1", kind) == b"{}\n"


def event(cursor, state=experiments.EXPERIMENT_STATE_SELECTING):
    return experiments.WatchExperimentResponse(cursor=cursor, state=state)


@pytest.mark.parametrize(
    "break_off",
    [
        lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "going away"),
        lambda context: context.abort(grpc.StatusCode.CANCELLED, "stopping"),
        lambda context: None,
    ],
    ids=["unavailable", "cancelled", "ended early"],
)
def test_a_watch_goes_on_from_its_cursor(connect, servicer, break_off):
    cursors: list[int] = []

    def two_events_a_connection(request, context):
        cursors.append(request.cursor)
        yield event(request.cursor + 1)
        if request.cursor == 4:
            yield event(6, experiments.EXPERIMENT_STATE_SUCCEEDED)
            return
        yield event(request.cursor + 2)
        break_off(context)

    events = connect(servicer(WatchExperiment=two_events_a_connection)).watch("e1")
    assert [found.cursor for found in events] == [1, 2, 3, 4, 5, 6]
    assert cursors == [0, 2, 4]


def test_a_watch_of_what_does_not_exist_ends_at_once(connect, servicer):
    def answer(request, context):
        refuse(context, errors.NotFoundError("no experiment 'e1'", field="id"))
        yield

    with pytest.raises(errors.NotFoundError):
        next(connect(servicer(WatchExperiment=answer)).watch("e1"))


def test_a_watch_gives_up_when_nobody_answers(free_address):
    with (
        LabCalls(free_address, patience=0.5) as client,
        pytest.raises(errors.UnavailableError),
    ):
        next(client.watch("e1"))


def test_a_watch_survives_a_restart_of_the_server(serve, servicer, free_address):
    def answer(request, context):
        yield event(request.cursor + 1, experiments.EXPERIMENT_STATE_SUCCEEDED)

    with LabCalls(free_address, patience=20) as client:
        events = client.watch("e1", cursor=7)
        serve(servicer(WatchExperiment=answer), free_address)
        assert next(events).cursor == 8


def test_a_long_silence_is_no_loss(serve, servicer, monkeypatch):
    monkeypatch.setattr(watching, "STREAM_SECONDS", 1.0)
    monkeypatch.setattr(watching, "CONNECT_SECONDS", 0.5)
    opened: list[int] = []

    def silent_for_two_streams(request, context):
        opened.append(request.cursor)
        if len(opened) < 3:
            while context.is_active():
                time.sleep(0.05)
        yield event(1, experiments.EXPERIMENT_STATE_SUCCEEDED)

    service = servicer(WatchExperiment=silent_for_two_streams)
    with LabCalls(serve(service), patience=0.5) as client:
        assert [found.cursor for found in client.watch("e1")] == [1]
    assert opened == [0, 0, 0]
