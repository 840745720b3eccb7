"""Rate and stream limits of one token."""

from contextlib import ExitStack, nullcontext

import grpc
import pytest

from modnorm.errors import RateLimitedError
from modnorm.v1 import evaluation_pb2, evaluation_pb2_grpc
from modnorm.wire.channel import open_channel
from modnorm.wire.status import from_rpc_error
from modnorm.wire.tokens import Role
from verification.labs.secured_lab import secured_lab
from verification.labs.waiting import HANG_SECONDS, wait_until


def test_rate_limited_calls_are_told_when_to_retry(lab, channel, exhaust):
    shown = lab.token("eager", [Role.READ], rate=2)
    listing = channel(shown).unary_unary("/modnorm.v1.ExperimentService/ListExperiments")
    for _ in range(4):
        listing(b"", timeout=HANG_SECONDS)
    with pytest.raises(grpc.RpcError) as raised:
        exhaust([listing(b"", timeout=HANG_SECONDS)] for _ in range(100))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    met = from_rpc_error(raised.value)
    assert isinstance(met, RateLimitedError)
    assert 0 < met.wait <= 1 / 2


def test_each_call_of_a_message_counts(lab, channel, exhaust):
    beat = evaluation_pb2.Call(heartbeat=evaluation_pb2.HeartbeatRequest())
    for number, allowed in ((1, True), (2, False), (20, False)):
        message = evaluation_pb2.WorkRequest(calls=[beat] * number)
        shown = lab.token(f"worker-of-{number}", [Role.WORKER], rate=0.1)
        stub = evaluation_pb2_grpc.JobServiceStub(channel(shown))
        with nullcontext() if allowed else pytest.raises(grpc.RpcError) as raised:
            exhaust([stub.Work(iter([message]), timeout=HANG_SECONDS)])
        if raised is not None:
            assert isinstance(from_rpc_error(raised.value), RateLimitedError)


def test_a_token_holds_so_many_streams_open(tmp_path, monkeypatch, beats):
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
        wait_until(lambda: is_let_in(beats(connected[2])), "a stream is let in", pause=0.0)
        next(one)


def is_let_in(calls):
    try:
        next(calls)
    except grpc.RpcError:
        return False
    return True


def test_the_client_waits_its_turn(lab, client, exhaust):
    connected = client(lab.token("patient", [Role.READ], rate=20))
    for _ in range(50):
        list(connected.list())
    impatient = client(lab.token("impatient", [Role.READ], rate=0.0001))
    with pytest.raises(RateLimitedError) as raised:
        exhaust(impatient.list() for _ in range(3))
    assert raised.value.wait > 30
