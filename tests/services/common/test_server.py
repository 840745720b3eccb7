import asyncio

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from modnorm.errors import (
    CandidateError,
    ConflictError,
    InvalidInputError,
    ModnormError,
    NotFoundError,
    StaleLeaseError,
    TooLargeError,
    UnavailableError,
)
from modnorm.services.common.channels import MESSAGE_BYTES
from modnorm.services.common.healthcheck import check
from modnorm.services.common.server import GrpcService
from modnorm.services.common.settings import ServiceSettings
from modnorm.v1 import experiment_pb2, experiment_pb2_grpc
from modnorm.wire.status import from_rpc_error
from tests.services.loopback import on_loopback
from verification.labs.waiting import HANG_SECONDS

SERVICE = "modnorm.v1.ExperimentService"
ERRORS = [
    InvalidInputError("too small", field="population.size", remedy="take more"),
    TooLargeError("too many", field="rows", remedy="take fewer"),
    NotFoundError("gone"),
    ConflictError("taken", field="request_id"),
    StaleLeaseError("lost"),
    UnavailableError("down", remedy="wait"),
    CandidateError("nan"),
]


def _error(name):
    return ERRORS[int(name)] if name.isdigit() else ZeroDivisionError("secret")


async def _unary(request, context):
    if request.id == "slow":
        await context.send_initial_metadata(())
        await asyncio.sleep(0.3)
        return experiment_pb2.GetExperimentResponse()
    if request.id == "large":
        spec = experiment_pb2.ExperimentSpec(name="n" * MESSAGE_BYTES)
        return experiment_pb2.GetExperimentResponse(
            experiment=experiment_pb2.Experiment(spec=spec)
        )
    raise _error(request.id)


async def _stream(request, context):
    yield experiment_pb2.WatchExperimentResponse(cursor=1)
    raise _error(request.id)


def register(server):
    """Add methods that raise the error named in the request."""
    experiments = {
        "GetExperiment": grpc.unary_unary_rpc_method_handler(
            _unary,
            experiment_pb2.GetExperimentRequest.FromString,
            experiment_pb2.GetExperimentResponse.SerializeToString,
        ),
        "WatchExperiment": grpc.unary_stream_rpc_method_handler(
            _stream,
            experiment_pb2.WatchExperimentRequest.FromString,
            experiment_pb2.WatchExperimentResponse.SerializeToString,
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, experiments),))
    return (SERVICE,)


def running(**settings):
    return on_loopback(register, **settings)


async def _get(channel, name):
    stub = experiment_pb2_grpc.ExperimentServiceStub(channel)
    return await stub.GetExperiment(
        experiment_pb2.GetExperimentRequest(id=name), timeout=HANG_SECONDS
    )


async def _watch(channel, name):
    stub = experiment_pb2_grpc.ExperimentServiceStub(channel)
    request = experiment_pb2.WatchExperimentRequest(id=name)
    async for _ in stub.WatchExperiment(request, timeout=HANG_SECONDS):
        pass


async def _error_of(channel, call, name):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, name)
    return from_rpc_error(caught.value)


@pytest.mark.parametrize("call", [_get, _watch])
async def test_errors_arrive_as_they_were_raised(call):
    async with running() as (_, channel):
        for index, raised in enumerate(ERRORS):
            error = await _error_of(channel, call, str(index))
            assert type(error) is type(raised)
            found = (error.message, error.field, error.remedy)
            assert found == (raised.message, raised.field, raised.remedy)


@pytest.mark.parametrize("call", [_get, _watch])
async def test_a_defect_is_logged_and_not_shown(call, caplog):
    async with running() as (_, channel):
        error = await _error_of(channel, call, "defect")
    assert type(error) is ModnormError
    assert "secret" not in str(error)
    (record,) = [record for record in caplog.records if record.message == "unexpected error"]
    assert record.error_id in error.message
    assert isinstance(record.exc_info[1], ZeroDivisionError)


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\U0001f600"])
async def test_an_endless_message_still_arrives(monkeypatch, letter):
    monkeypatch.setitem(globals(), "ERRORS", [NotFoundError(letter * 100_000)])
    for _ in range(8):  # too large metadata is dropped only sometimes
        async with running() as (_, channel):
            error = await _error_of(channel, _get, "0")
        assert type(error) is NotFoundError
        assert error.message.startswith(letter * 100)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        pytest.param("n" * (MESSAGE_BYTES + 1), -1, id="request, over the server's limit"),
        pytest.param("n" * 100, 50, id="request, over the caller's limit"),
        pytest.param("large", -1, id="response, over the server's limit"),
    ],
)
async def test_a_message_over_the_size_limit_is_the_callers_fault(name, limit):
    async with running() as (server, _):
        options = [("grpc.max_send_message_length", limit)]
        target = f"127.0.0.1:{server.port}"
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _get(channel, name)
    met = from_rpc_error(caught.value)
    assert type(met) is TooLargeError
    assert "larger than max" in met.message
    assert met.field == "message"
    assert "less" in (met.remedy or "")


async def test_health_follows_the_service():
    async with running() as (server, _):
        target = f"127.0.0.1:{server.port}"
        for name in ("", SERVICE):
            assert await asyncio.to_thread(check, target, name) == "SERVING"
        assert await asyncio.to_thread(check, target, "other") == "NOT_FOUND"
        await server.set_serving(serving=False)
        assert await asyncio.to_thread(check, target, SERVICE) == "NOT_SERVING"
        assert await asyncio.to_thread(check, target) == "NOT_SERVING"
        assert await asyncio.to_thread(check, target, "grpc.health.v1.Health") == "SERVING"
    assert check("127.0.0.1:1", timeout=1.0) == "UNAVAILABLE"


async def test_a_stop_reports_not_serving_and_lets_calls_finish():
    async with running(grace=5.0) as (server, channel):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stub = experiment_pb2_grpc.ExperimentServiceStub(channel)
        call = stub.GetExperiment(
            experiment_pb2.GetExperimentRequest(id="slow"), timeout=HANG_SECONDS
        )
        await call.initial_metadata()
        stop = asyncio.create_task(server.stop())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await call == experiment_pb2.GetExperimentResponse()
        watch.cancel()
        await stop


async def test_a_taken_address_is_an_error():
    async with running() as (server, _):
        other = GrpcService(ServiceSettings(bind_address=f"127.0.0.1:{server.port}"))
        with pytest.raises(UnavailableError, match="cannot listen"):
            await other.start()
