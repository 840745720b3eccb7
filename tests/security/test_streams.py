"""Calls on one stream are admitted separately while the token is valid."""

from itertools import islice
from queue import SimpleQueue

import grpc
import pytest

from modnorm.errors import UnauthenticatedError
from modnorm.v1 import evaluation_pb2, evaluation_pb2_grpc
from modnorm.wire.connection import Credentials
from modnorm.wire.status import from_rpc_error
from modnorm.wire.tokens import Role, revoke_token
from verification.labs.waiting import HANG_SECONDS


def test_each_call_on_a_stream_is_admitted_separately(lab, channel, exhaust, beats):
    gone = beats(channel(lab.token("short-lived-worker", [Role.WORKER])))
    next(gone)
    revoke_token(lab.accepted, "short-lived-worker")
    with pytest.raises(grpc.RpcError) as raised:
        exhaust([islice(gone, 20_000)])
    assert isinstance(from_rpc_error(raised.value), UnauthenticatedError)


def test_an_open_stream_ends_with_its_token(lab, channel, exhaust, beats):
    connected = channel(lab.token("early-worker", [Role.WORKER]))
    calls: SimpleQueue[evaluation_pb2.WorkRequest | None] = SimpleQueue()
    waiting = evaluation_pb2_grpc.JobServiceStub(connected).Work(
        iter(calls.get, None), timeout=HANG_SECONDS
    )
    alive = beats(connected)
    next(alive)
    revoke_token(lab.accepted, "early-worker")
    with pytest.raises(grpc.RpcError):
        exhaust([islice(alive, 20_000)])
    beat = evaluation_pb2.Call(heartbeat=evaluation_pb2.HeartbeatRequest())
    calls.put(evaluation_pb2.WorkRequest(calls=[beat]))
    with pytest.raises(grpc.RpcError) as raised:
        next(waiting)
    assert isinstance(from_rpc_error(raised.value), UnauthenticatedError)


def test_a_stream_outlives_the_token_that_it_was_opened_with(
    lab, channel, tmp_path, exhaust, beats, write_token
):
    file = tmp_path / "token"
    alive = beats(channel(Credentials(token_file=file)))
    for name in ("before", "after"):
        write_token(file, f"{name}-streaming", Role.WORKER)
        next(alive)
    revoke_token(lab.accepted, "before-streaming")
    probe = beats(channel(lab.token("probe", [Role.WORKER])))
    revoke_token(lab.accepted, "probe")
    with pytest.raises(grpc.RpcError):
        exhaust([islice(probe, 20_000)])
    next(alive)
