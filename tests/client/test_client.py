"""The client, against a service that the test plays."""

import asyncio
import random
import threading
import time
from dataclasses import FrozenInstanceError
from functools import partial

import grpc
import pytest

from modnorm import Client, errors
from modnorm.client import connection
from modnorm.client import connection as watching
from modnorm.client.experiments import Event, Experiment, ExperimentState, ExperimentSummary
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_to_proto
from tests.scripted_services import refuse
from verification.labs.waiting import HANG_SECONDS

SECONDS = 10


@pytest.fixture
def client(connect, serve, servicer):
    """Open a client of a service that the test plays by methods."""
    return lambda **methods: connect(serve(servicer(**methods)), timeout=SECONDS, patience=SECONDS)


@pytest.fixture
def stored(spec):
    """The message of an experiment."""
    return partial(experiments.Experiment, id="e1", spec=spec_to_proto(spec))


@pytest.fixture
def created(stored):
    """Answer as an aggregator that creates each experiment."""
    return lambda request, context: experiments.CreateExperimentResponse(
        experiment=stored(request_id=request.request_id, spec=request.spec)
    )


def test_a_submission_carries_the_spec_and_the_request_id(client, created, spec):
    connected = client(CreateExperiment=created)
    experiment = connected.submit(spec, "mine")
    assert (experiment.request_id, experiment.spec) == ("mine", spec)
    assert connected.submit(spec).request_id != connected.submit(spec).request_id
    assert connected.submit(spec, "").request_id == ""  # which a lab refuses


def test_the_error_that_the_service_met_is_raised(client, spec):
    error = errors.InvalidInputError("no task 'x'", field="task.name", remedy="one of countdown")

    def answer(request, context):
        refuse(context, error)

    with pytest.raises(errors.InvalidInputError) as raised:
        client(CreateExperiment=answer).submit(spec)
    assert str(raised.value) == str(error)


def test_a_server_that_is_no_lab_is_named(connect, serve, servicer):
    target = serve(servicer())
    with pytest.raises(errors.UnreachableError) as raised:
        connect(target).get("e1")
    assert target in raised.value.message
    assert raised.value.remedy


def test_an_unavailable_server_is_asked_again(client, stored):
    asked: list[str] = []

    def answer(request, context):
        asked.append(request.id)
        if len(asked) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return experiments.GetExperimentResponse(experiment=stored())

    assert client(GetExperiment=answer).get("e1").id == "e1"
    assert asked == ["e1"] * 3


def test_a_submission_that_takes_long_can_be_repeated(
    connect, serve, servicer, created, spec, monkeypatch
):
    asked: list[str] = []
    given_up = threading.Event()

    def answer(request, context):
        asked.append(request.request_id)
        given_up.wait(HANG_SECONDS)
        return created(request, context)

    monkeypatch.setattr(connection, "_SUBMIT_SECONDS", 0.4)
    target = serve(servicer(CreateExperiment=answer))
    connected = connect(target, timeout=0.4)
    with pytest.raises(errors.UnavailableError) as raised:
        connected.submit(spec)
    assert raised.value.message == f"the server {target} did not answer in time"
    assert raised.value.remedy is not None
    assert f"submit again with the request id {asked[0]}" in raised.value.remedy
    given_up.set()
    monkeypatch.setattr(connection, "_SUBMIT_SECONDS", HANG_SECONDS)
    assert connected.submit(spec, asked[0]).request_id == asked[0]


async def test_threads_share_a_client(client, stored):
    together = threading.Barrier(3, timeout=HANG_SECONDS)

    def answer(request, context):
        together.wait()
        return experiments.GetExperimentResponse(experiment=stored(id=request.id))

    def events(request, context):
        together.wait()
        yield event(1, experiments.EXPERIMENT_STATE_SUCCEEDED)

    connected = client(GetExperiment=answer, WatchExperiment=events)
    first, second, seen = await asyncio.gather(
        asyncio.to_thread(connected.get, "e1"),
        asyncio.to_thread(connected.get, "e2"),
        asyncio.to_thread(lambda: list(connected.watch("e3"))),
    )
    assert (first.id, second.id, [each.cursor for each in seen]) == ("e1", "e2", [1])


def test_a_closed_client_says_so(client, stored):
    connected = client(
        GetExperiment=lambda *_: experiments.GetExperimentResponse(experiment=stored()),
        WatchExperiment=lambda *_: iter([event(1), event(2)]),
    )
    events = connected.watch("e1")
    assert next(events).cursor == 1
    connected.close()
    for call in (
        lambda: connected.get("e1"),
        lambda: list(connected.list()),
        lambda: list(connected.watch("e1")),
        lambda: list(events),
    ):
        with pytest.raises(errors.PreconditionError, match="the connection is closed"):
            call()


def test_experiments_are_listed_page_by_page_as_summaries(client, stored, spec):
    tokens: list[str] = []

    def answer(request, context):
        tokens.append(request.page_token)
        following = "" if request.page_token else "next"
        found = stored(id=f"e{len(tokens)}")
        return experiments.ListExperimentsResponse(experiments=[found], next_page_token=following)

    listing = client(ListExperiments=answer).list()
    assert tokens == []
    assert [(one.id, one.task, type(one)) for one in listing] == [
        ("e1", spec.task.name, ExperimentSummary),
        ("e2", spec.task.name, ExperimentSummary),
    ]
    assert tokens == ["", "next"]


def test_an_experiment_and_its_events_are_frozen_values(client, stored, spec):
    message = stored(
        state=experiments.EXPERIMENT_STATE_FAILED,
        error="no disk",
        remedy="add one",
        ensembles=[experiments.EnsembleResult(population=4, ensemble_size=2, experts=[3, 1])],
    )
    last = experiments.WatchExperimentResponse(cursor=7, state=message.state, message="the end")
    connected = client(
        GetExperiment=lambda *_: experiments.GetExperimentResponse(experiment=message),
        CancelExperiment=lambda *_: experiments.CancelExperimentResponse(experiment=message),
        WatchExperiment=lambda *_: iter([last]),
    )
    experiment = connected.get("e1")
    assert connected.cancel("e1") == experiment
    (event,) = connected.watch("e1")
    assert isinstance(experiment, Experiment)
    assert (experiment.state, experiment.error) == (ExperimentState.FAILED, "no disk (add one)")
    assert experiment.spec == spec
    assert experiment.base is None
    assert experiment.ended is None
    assert experiment.ensembles[0].experts == (3, 1)
    assert isinstance(event, Event)
    assert (event.cursor, event.state.is_final, event.progress.best_reward) == (7, True, None)
    with pytest.raises(FrozenInstanceError):
        setattr(experiment, "state", ExperimentState.SUCCEEDED)  # noqa: B010 - mypy refuses it


def test_a_run_is_read_from_the_lab(connect, gsm8k_lab):
    connected = connect(gsm8k_lab)
    run = connected.run("e1")
    assert run.base.heldout_metric == 0.5
    assert len(run.candidates) == 4
    assert run.ensembles[-1].place == (4, 2)
    answers = list(run.answers(candidate=1, split="heldout", wrong=True))
    assert [(one.row, one.completion, one.gold) for one in answers] == [(1, "so 8", "7")]
    votes = list(run.votes(row=1))
    assert [(one.population, one.ensemble_size, one.answer) for one in votes] == [
        (2, 1, "7"),
        (2, 2, "7"),
        (4, 1, "7"),
        (4, 2, "7"),
    ]
    assert len(list(run.votes())) == 8


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
def test_a_watch_goes_on_from_its_cursor(client, break_off):
    cursors: list[int] = []

    def two_events_a_connection(request, context):
        cursors.append(request.cursor)
        yield event(request.cursor + 1)
        if request.cursor == 4:
            yield event(6, experiments.EXPERIMENT_STATE_SUCCEEDED)
            return
        yield event(request.cursor + 2)
        break_off(context)

    events = client(WatchExperiment=two_events_a_connection).watch("e1")
    assert [found.cursor for found in events] == [1, 2, 3, 4, 5, 6]
    assert cursors == [0, 2, 4]


@pytest.mark.usefixtures("quick_retries")
def test_a_watch_gives_up_when_nobody_answers(connect, free_address):
    with pytest.raises(errors.UnreachableError) as raised:
        next(connect(free_address, patience=0.5).watch("e1"))
    assert raised.value.remedy


def test_a_long_silence_is_no_loss(connect, serve, servicer, monkeypatch):
    monkeypatch.setattr(watching, "STREAM_SECONDS", 1.0)
    monkeypatch.setattr(watching, "CONNECT_SECONDS", 0.5)
    opened: list[int] = []

    def silent_for_two_streams(request, context):
        opened.append(request.cursor)
        if len(opened) < 3:
            while context.is_active():
                time.sleep(0.05)
        yield event(1, experiments.EXPERIMENT_STATE_SUCCEEDED)

    target = serve(servicer(WatchExperiment=silent_for_two_streams))
    assert [found.cursor for found in connect(target, patience=0.5).watch("e1")] == [1]
    assert opened == [0, 0, 0]


def test_each_outage_begins_with_a_short_pause(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    lost = errors.UnavailableError("lost")
    stream = watching.Reconnection(patience=600)
    stream.opened()
    first = [stream.pause(lost) for _ in range(8)]
    assert first == sorted(first)
    assert first[0] < first[-1]
    stream.opened()
    now[0] += watching.CONNECT_SECONDS + 1  # connected, without an event
    assert stream.pause(lost) == first[0]


def test_only_patience_may_be_endless():
    with Client("127.0.0.1:1", patience=float("inf")) as client:
        assert client.patience == float("inf")
    with pytest.raises(errors.InvalidInputError, match=r"timeout: .*finite"):
        Client("127.0.0.1:1", timeout=float("inf"))
    with pytest.raises(errors.InvalidInputError, match=r"patience: nan is no number"):
        Client("127.0.0.1:1", patience=float("nan"))
