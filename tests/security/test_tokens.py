"""Who may call what, over real channels."""

import contextlib
import json
import logging
import threading
import time
from contextlib import ExitStack, nullcontext
from itertools import islice
from queue import SimpleQueue

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from benchmarks.fuzz.discovery import Rpc, every_rpc
from benchmarks.secured_lab import secured_lab
from modnorm.client import ModnormClient
from modnorm.client.channel import Credentials, open_channel
from modnorm.client.sandbox import RemoteSandbox
from modnorm.client.status import from_rpc_error
from modnorm.client.tokens import Role, add_token, make_token, revoke_token
from modnorm.errors import (
    ForbiddenError,
    NotFoundError,
    RateLimitedError,
    UnauthenticatedError,
    UnavailableError,
)
from modnorm.v1 import (
    calibration_pb2,
    evaluation_pb2,
    evaluation_pb2_grpc,
    experiment_pb2,
    radius_pb2,
    sampling_pb2,
    sandbox_pb2,
    status_pb2,
)
from services.common.access.roles import ALLOWED, OPEN
from services.common.healthcheck import check
from services.evaluator.calls import StreamedCalls
from services.evaluator.gateway import JobGateway
from services.evaluator.shutdown import Shutdown
from services.evaluator.tasks import Tasks, UnfitError

FAILED = experiment_pb2.EXPERIMENT_STATE_FAILED
HOMES = {
    experiment_pb2: "aggregator",
    radius_pb2: "aggregator",
    evaluation_pb2: "aggregator",
    status_pb2: "aggregator",
    calibration_pb2: "calibrator",
    sampling_pb2: "sampler",
    sandbox_pb2: "sandbox",
}
RPCS = [
    Rpc(home, method)
    for module, home in HOMES.items()
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
PATHS = [rpc.path for rpc in RPCS]


def call(channel, rpc):
    """Call a method with an empty request, and read its answer to the end."""
    empty = GetMessageClass(rpc.method.input_type)().SerializeToString()
    for _ in channel.stream_stream(rpc.path)(iter([empty]), timeout=30):
        pass


def exhaust(calls):
    for answers in calls:
        for _ in answers:
            pass


def test_every_rpc_is_in_the_table(lab, tokens):
    found = {rpc.path: rpc.home for rpc in every_rpc(lab.targets, tokens["read"])}
    ours = {path: home for path, home in found.items() if path.startswith("/modnorm.")}
    assert ours == {rpc.path: rpc.home for rpc in RPCS}
    assert set(ALLOWED) == {path for path in found if not path.startswith(OPEN)}
    assert all(ALLOWED.values())


@pytest.mark.parametrize("rpc", RPCS, ids=PATHS)
@pytest.mark.parametrize("name", ["none", "forged", "expired"])
def test_without_a_good_token_nothing_is_answered(rpc, name, channel, refused):
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        call(channel(name, rpc.home), rpc)


@pytest.mark.parametrize("rpc", RPCS, ids=PATHS)
def test_each_role_gets_what_the_table_says(rpc, channel, refused):
    for role in Role:
        if role in ALLOWED[rpc.path]:
            assert code_of(channel(role.value, rpc.home), rpc) not in {
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.UNKNOWN,
            }
        else:
            with refused(grpc.StatusCode.PERMISSION_DENIED):
                call(channel(role.value, rpc.home), rpc)


def code_of(channel, rpc):
    try:
        call(channel, rpc)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    "header",
    [
        [("authorization", "Bearer")],
        [("authorization", "Basic {token}")],
        [("authorization", "{token}")],
        [("authorization", "Bearer {token} {token}")],
        [("authorization", "Bearer {token}"), ("authorization", "Bearer {token}")],
        [("x-authorization", "Bearer {token}")],
    ],
)
def test_a_token_is_shown_in_one_way(header, channel, tokens, refused):
    text = tokens["read"].token.get_secret_value()
    metadata = [(key, value.format(token=text)) for key, value in header]
    listing = channel("none").unary_unary("/modnorm.v1.ExperimentService/ListExperiments")
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        listing(b"", metadata=metadata, timeout=30)


def test_health_is_open_and_reflection_is_not(lab, channel, refused):
    assert all(
        check(target, credentials=Credentials()) in {"SERVING", "NOT_SERVING"}
        for target in lab.targets.values()
    )
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with refused(grpc.StatusCode.UNAUTHENTICATED):
        next(_reflect(channel("none"), request))
    listed = next(_reflect(channel("read"), request)).list_services_response.service
    assert "modnorm.v1.ExperimentService" in {service.name for service in listed}


def _reflect(channel, request):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    return stub.ServerReflectionInfo(iter([request]), timeout=30)


def test_the_client_raises_what_the_server_means(client, spec):
    with pytest.raises(UnauthenticatedError, match="MODNORM_TOKEN"):
        list(client("none").list())
    with pytest.raises(UnauthenticatedError, match="expired"):
        list(client("expired").list())
    with pytest.raises(ForbiddenError, match="role submit"):
        client("read").submit(spec())
    with pytest.raises(ForbiddenError):
        next(iter(client("worker").watch("x")))


def test_a_revoked_token_is_refused_soon(lab, client):
    connected = client(lab.token("short-lived", [Role.READ]))
    list(connected.list())
    revoke_token(lab.accepted, "short-lived")
    with pytest.raises(UnauthenticatedError, match="revoked"):
        exhaust(connected.list() for _ in range(10_000))


def test_a_token_in_a_file_may_be_replaced(lab, client, tmp_path):
    file = tmp_path / "token"
    connected = client(Credentials(token_file=file))
    for name in ("before", "after"):
        text, kept = make_token(f"{name}-replaced", [Role.READ])
        add_token(lab.accepted, kept)
        file.write_text(f"{text}\n")
        list(connected.list())
        revoke_token(lab.accepted, f"{name}-replaced")


def test_too_many_calls_are_told_when_to_come_again(lab, channel):
    shown = lab.token("eager", [Role.READ], rate=2)
    listing = channel(shown).unary_unary("/modnorm.v1.ExperimentService/ListExperiments")
    for _ in range(4):
        listing(b"", timeout=30)
    with pytest.raises(grpc.RpcError) as raised:
        exhaust([listing(b"", timeout=30)] for _ in range(100))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    met = from_rpc_error(raised.value)
    assert isinstance(met, RateLimitedError)
    assert 0 < met.wait <= 1 / 2


def beats(connected):
    """Say over one stream, again and again, that nobody's job goes on."""
    calls = StreamedCalls(evaluation_pb2_grpc.JobServiceStub(connected))
    while True:
        with pytest.raises(NotFoundError):
            calls.heartbeat(evaluation_pb2.HeartbeatRequest())
        yield


def test_each_call_on_a_stream_is_let_in_for_itself(lab, channel):
    eager = beats(channel(lab.token("eager-worker", [Role.WORKER], rate=2)))
    with pytest.raises(grpc.RpcError) as raised:
        exhaust([islice(eager, 100)])
    assert isinstance(from_rpc_error(raised.value), RateLimitedError)
    gone = beats(channel(lab.token("short-lived-worker", [Role.WORKER])))
    next(gone)
    revoke_token(lab.accepted, "short-lived-worker")
    with pytest.raises(grpc.RpcError) as raised:
        exhaust([islice(gone, 20_000)])
    assert isinstance(from_rpc_error(raised.value), UnauthenticatedError)


def test_two_calls_in_one_message_are_two_calls(lab, channel):
    one = evaluation_pb2.WorkRequest(heartbeat=evaluation_pb2.HeartbeatRequest())
    pair = evaluation_pb2.WorkRequest(heartbeat=one.heartbeat, also=one)
    for name, message, allowed in (("single", one, True), ("pairing", pair, False)):
        shown = lab.token(f"{name}-worker", [Role.WORKER], rate=0.1)
        stub = evaluation_pb2_grpc.JobServiceStub(channel(shown))
        with nullcontext() if allowed else pytest.raises(grpc.RpcError) as raised:
            exhaust([stub.Work(iter([message]), timeout=30)])
        if raised is not None:
            assert isinstance(from_rpc_error(raised.value), RateLimitedError)


def test_a_token_holds_so_many_streams_open(tmp_path, monkeypatch):
    monkeypatch.setenv("MODNORM_STREAM_LIMIT", "2")
    with secured_lab(tmp_path) as small, ExitStack() as opened:
        connected = [
            opened.enter_context(open_channel(small.targets["aggregator"], shown, ()))
            for shown in [small.token("crowd", [Role.WORKER])] * 3
            + [small.token("other", [Role.WORKER])]
        ]
        one, two, three, other = map(beats, connected)
        for allowed in (one, two, other):
            next(allowed)
        with pytest.raises(grpc.RpcError) as raised:
            next(three)
        met = from_rpc_error(raised.value)
        assert isinstance(met, RateLimitedError)
        assert met.field == "stream_limit"
        next(one)
        connected[1].close()
        deadline = time.monotonic() + 60
        while not is_let_in(connected[2]):
            assert time.monotonic() < deadline
        next(one)


def is_let_in(connected):
    try:
        next(beats(connected))
    except grpc.RpcError:
        return False
    return True


def test_a_stream_that_was_opened_in_time_lets_nobody_in_later(lab, channel):
    connected = channel(lab.token("early-worker", [Role.WORKER]))
    calls: SimpleQueue[evaluation_pb2.WorkRequest | None] = SimpleQueue()
    waiting = evaluation_pb2_grpc.JobServiceStub(connected).Work(iter(calls.get, None), timeout=30)
    alive = beats(connected)
    next(alive)
    revoke_token(lab.accepted, "early-worker")
    with pytest.raises(grpc.RpcError):
        exhaust([islice(alive, 20_000)])
    calls.put(evaluation_pb2.WorkRequest(heartbeat=evaluation_pb2.HeartbeatRequest()))
    with pytest.raises(grpc.RpcError) as raised:
        next(waiting)
    assert isinstance(from_rpc_error(raised.value), UnauthenticatedError)


def test_a_stream_outlives_the_token_that_it_was_opened_with(lab, channel, tmp_path):
    file = tmp_path / "token"
    alive = beats(channel(Credentials(token_file=file)))
    for name in ("before", "after"):
        text, kept = make_token(f"{name}-streaming", [Role.WORKER])
        add_token(lab.accepted, kept)
        file.write_text(f"{text}\n")
        next(alive)
    revoke_token(lab.accepted, "before-streaming")
    probe = beats(channel(lab.token("probe", [Role.WORKER])))
    revoke_token(lab.accepted, "probe")
    with pytest.raises(grpc.RpcError):
        exhaust([islice(probe, 20_000)])
    next(alive)


def test_a_worker_waits_while_the_file_of_its_token_is_away(lab, channel, tmp_path):
    file = tmp_path / "token"
    text, kept = make_token("late-worker", [Role.WORKER])
    add_token(lab.accepted, kept)
    stub = evaluation_pb2_grpc.JobServiceStub(channel(Credentials(token_file=file)))
    gateway = JobGateway(stub, worker="late", shutdown=Shutdown(0.0))
    threading.Timer(0.3, file.write_text, [text]).start()
    assert gateway.claim("nobody") is None
    file.unlink()
    threading.Timer(0.3, file.write_text, [text]).start()
    with pytest.raises(NotFoundError):
        gateway.scale_map("0" * 64)


@pytest.mark.parametrize("name", ["none", "read"])
def test_a_job_is_handed_back_where_the_sandbox_refuses_the_worker(lab, tokens, name):
    sandbox = RemoteSandbox(lab.targets["sandbox"], credentials=tokens[name])
    with contextlib.closing(sandbox), pytest.raises(UnfitError):
        Tasks(sandbox).check("mbpp")


def test_a_watch_ends_with_its_token_and_goes_on_with_the_next(lab, client, spec, tmp_path):
    file, owner = tmp_path / "token", client("team-a")
    followed = [owner.submit(spec(name=f"watched {number}")).id for number in range(2)]
    shown = Credentials(token_file=file)

    def renewed(number):
        text, kept = make_token(f"watcher-{number}", [Role.READ], tenant="team-a")
        add_token(lab.accepted, kept)
        file.write_text(text)

    def revoked(number):
        revoke_token(lab.accepted, f"watcher-{number}")
        with pytest.raises(UnauthenticatedError):
            exhaust(client(shown).list() for _ in range(10_000))

    renewed(0)
    watching = [client(shown).watch(id_) for id_ in followed]
    for events in watching:
        next(events)
    revoked(0)
    owner.cancel(followed[0])
    with pytest.raises(UnauthenticatedError, match="revoked"):
        exhaust([watching[0]])
    renewed(1)
    owner.cancel(followed[1])
    assert "CANCELLED" in [event.message for event in watching[1]][-1].upper()


def test_the_client_waits_its_turn(lab, client):
    connected = client(lab.token("patient", [Role.READ], rate=20))
    for _ in range(50):
        list(connected.list())
    impatient = client(lab.token("impatient", [Role.READ], rate=0.01))
    with pytest.raises(RateLimitedError) as raised:
        exhaust(impatient.list() for _ in range(3))
    assert raised.value.wait > 30


def test_an_aggregator_that_is_refused_itself_blames_no_caller(tmp_path, spec):
    (tmp_path / "lab").mkdir()
    with secured_lab(tmp_path / "lab") as lab:
        owner = lab.token("owner", [Role.SUBMIT, Role.READ])
        revoke_token(lab.accepted, "inside")
        with ModnormClient(lab.targets["aggregator"], credentials=owner) as client:
            with pytest.raises(UnavailableError, match="the token 'inside' was revoked"):
                exhaust([client.submit(spec(name=str(number))).id] for number in range(1000))
            assert all(one.state != FAILED for one in client.list())


def test_tenants_do_not_see_each_other(lab, client, channel, spec, stored, refused, tokens):
    mine, theirs, operator = client("team-a"), client("team-b"), client("operate")
    made = mine.submit(spec(), "request")
    assert made.id in {one.id for one in mine.list()}
    assert made.id not in {one.id for one in theirs.list()}
    assert made.id in {one.id for one in operator.list()}
    assert mine.submit(spec(), "request").id == made.id
    other = theirs.submit(spec(method={"name": "randopt", "sigma": 0.02}), "request")
    assert other.id != made.id
    assert (made.request_id, other.request_id) == ("request", "request")
    mine.cancel(made.id)
    theirs.cancel(other.id)
    before = stored()
    reads = [
        lambda: theirs.get(made.id),
        lambda: next(iter(theirs.watch(made.id))),
        lambda: theirs.cancel(made.id),
        lambda: next(theirs.candidates(made.id)),
        lambda: next(theirs.answers(made.id, -1)),
        lambda: next(theirs.votes(made.id, 3, 1)),
        lambda: theirs.artifact(made.id, 3),
    ]
    for read in reads:
        with pytest.raises(NotFoundError) as hidden:
            read()
        assert made.id in hidden.value.message
    with pytest.raises(NotFoundError) as absent:
        theirs.get("nobody")
    assert absent.value.message == "there is no experiment 'nobody'"
    assert operator.get(made.id).id == made.id
    assert stored() == before


def test_what_is_refused_is_logged_without_the_secret(channel, tokens, refused, caplog):
    job = evaluation_pb2.ClaimJobRequest(job_id="j", worker="w")
    with caplog.at_level(logging.DEBUG):
        for name in ("none", "forged", "expired", "read"):
            with pytest.raises(grpc.RpcError):
                evaluation_pb2_grpc.JobServiceStub(channel(name)).ClaimJob(job, timeout=30)
    lines = [record for record in caplog.records if record.msg.startswith("refused")]
    assert [line.method for line in lines] == ["/modnorm.v1.JobService/ClaimJob"] * 4
    assert all(line.peer.startswith("ipv4:127.0.0.1") for line in lines)
    written = json.dumps([repr(record.__dict__) for record in caplog.records])
    for name in ("forged", "expired", "read"):
        assert tokens[name].token.get_secret_value().rpartition("_")[2] not in written
