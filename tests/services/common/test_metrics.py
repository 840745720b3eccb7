import urllib.request
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from modnorm.errors import NotFoundError, UnavailableError
from modnorm.services.common.metrics import exposed
from modnorm.v1 import evaluation_pb2, experiment_pb2
from modnorm.v1.evaluation_pb2_grpc import (
    JobServiceServicer,
    JobServiceStub,
    add_JobServiceServicer_to_server,
)
from modnorm.v1.experiment_pb2_grpc import (
    ExperimentServiceServicer,
    ExperimentServiceStub,
    add_ExperimentServiceServicer_to_server,
)
from tests.services.loopback import on_loopback
from verification.labs.waiting import HANG_SECONDS


class Experiments(ExperimentServiceServicer):
    async def GetExperiment(self, request, context):  # noqa: N802 - the rpc's name
        if request.id != "here":
            raise NotFoundError("gone")
        return experiment_pb2.GetExperimentResponse()

    async def WatchExperiment(self, request, context):  # noqa: N802 - the rpc's name
        yield experiment_pb2.WatchExperimentResponse(cursor=1)
        if request.id == "abort":
            await context.abort(grpc.StatusCode.DATA_LOSS, "own words")


class Jobs(JobServiceServicer):
    async def ReportJob(self, request, context):  # noqa: N802 - the rpc's name
        return evaluation_pb2.ReportJobResponse()


def register(server):
    add_ExperimentServiceServicer_to_server(Experiments(), server)  # type: ignore[abstract]  # few of its calls
    add_JobServiceServicer_to_server(Jobs(), server)  # type: ignore[abstract]  # few of its calls
    return ()


@asynccontextmanager
async def running(registry):
    async with on_loopback(register, registry) as (_, channel):
        yield ExperimentServiceStub(channel), JobServiceStub(channel), channel


def count(registry, name, **labels):
    return registry.get_sample_value(name, labels) or 0


def calls(registry, method, code, service="modnorm.v1.ExperimentService"):
    return count(registry, "modnorm_grpc_calls_total", service=service, method=method, code=code)


async def _outcome(call):
    with pytest.raises(grpc.aio.AioRpcError):
        await call


async def test_calls_are_counted_by_method_and_code_and_timed():
    registry = CollectorRegistry()
    async with running(registry) as (experiments, jobs, _):
        for name in ("here", "here"):
            await experiments.GetExperiment(experiment_pb2.GetExperimentRequest(id=name))
        gone = experiment_pb2.GetExperimentRequest(id="gone")
        await _outcome(experiments.GetExperiment(gone))
        await jobs.ReportJob(evaluation_pb2.ReportJobRequest())
        request = experiment_pb2.WatchExperimentRequest(id="here")
        assert [event.cursor async for event in experiments.WatchExperiment(request)] == [1]
        stream = experiments.WatchExperiment(experiment_pb2.WatchExperimentRequest(id="abort"))
        await stream.read()
        await _outcome(stream.read())
    assert calls(registry, "GetExperiment", "OK") == 2
    assert calls(registry, "GetExperiment", "NOT_FOUND") == 1
    assert calls(registry, "WatchExperiment", "OK") == 1
    assert calls(registry, "WatchExperiment", "DATA_LOSS") == 1
    assert calls(registry, "ReportJob", "OK", "modnorm.v1.JobService") == 1
    labels = {"service": "modnorm.v1.ExperimentService", "method": "GetExperiment"}
    assert count(registry, "modnorm_grpc_call_seconds_count", **labels) == 3


async def test_callers_cannot_make_time_series():
    registry = CollectorRegistry()
    async with running(registry) as (_, _, channel):
        for method in ("/modnorm.v1.ExperimentService/Evil", "/evil/Evil"):
            await _outcome(channel.unary_unary(method)(b""))
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert names == set()


def test_metrics_are_shown_over_http_as_long_as_the_context_lasts():
    registry = CollectorRegistry()
    with exposed("127.0.0.1:0", registry) as port:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=HANG_SECONDS
        ) as answer:
            assert answer.status == 200
        with (
            pytest.raises(UnavailableError, match="MODNORM_METRICS_ADDRESS"),
            exposed(f"127.0.0.1:{port}", registry),
        ):
            pass
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG_SECONDS)
