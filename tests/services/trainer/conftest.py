"""A real gRPC server with the students' service and a job service that leases trainings."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import grpc
import pytest
from prometheus_client import CollectorRegistry
from typing_extensions import override

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import ModnormError
from modnorm.services.common.channels import CHANNEL_OPTIONS
from modnorm.services.common.settings import TrainerSettings
from modnorm.services.common.student_servicer import SERVICE, ModelServicer
from modnorm.services.common.students import Students
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.services.trainer.metrics import TrainerMetrics
from modnorm.services.trainer.training_client import TrainingClient
from modnorm.services.trainer.training_runner import TrainingRunner
from modnorm.v1 import common_pb2, evaluation_pb2_grpc, models_pb2_grpc
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.status import to_status
from tests.services.loopback import in_thread
from tests.training.conftest import write_dataset


@dataclass
class Aggregator(evaluation_pb2_grpc.JobServiceServicer):
    """A scripted job service."""

    lines: list[str]
    jobs: dict[str, messages.TrainJob] = field(default_factory=dict)
    heartbeats: list[messages.HeartbeatRequest] = field(default_factory=list)
    reports: list[messages.TrainReport] = field(default_factory=list)
    failures: list[messages.FailJobRequest] = field(default_factory=list)
    cancel_from: int | None = None
    """Step from which heartbeats are told to cancel."""
    end: ModnormError | None = None
    """Error of all heartbeats with a step."""
    refusal: ModnormError | None = None
    """Error of all reports."""

    @override
    async def Work(self, request_iterator, context) -> AsyncIterator[messages.WorkResponse]:
        async for message in request_iterator:
            yield messages.WorkResponse(replies=map(self._reply, message.calls))

    @override
    async def FetchDataset(self, request, context) -> AsyncIterator[messages.FetchDatasetResponse]:
        yield messages.FetchDatasetResponse(lines=self.lines[:5])
        yield messages.FetchDatasetResponse(lines=self.lines[5:])

    def _reply(self, call: messages.Call) -> messages.Reply:
        match call.WhichOneof("request"):
            case "claim":
                assert call.claim.trains
                job = self.jobs.get(call.claim.job_id)
                return messages.Reply(claim=messages.ClaimJobResponse(train=job))
            case "heartbeat":
                return self._heartbeat(call.heartbeat)
            case "trained" if self.refusal is not None:
                return messages.Reply(status=to_status(self.refusal).SerializeToString())
            case "trained":
                self.reports.append(call.trained)
                return messages.Reply(trained=messages.TrainReportResponse())
            case _:
                self.failures.append(call.fail)
                return messages.Reply(fail=messages.FailJobResponse())

    def _heartbeat(self, heartbeat: messages.HeartbeatRequest) -> messages.Reply:
        self.heartbeats.append(heartbeat)
        step = heartbeat.training.step
        if self.end is not None and step:
            return messages.Reply(status=to_status(self.end).SerializeToString())
        cancel = self.cancel_from is not None and step >= self.cancel_from
        return messages.Reply(heartbeat=messages.HeartbeatResponse(cancel=cancel))


@pytest.fixture
def dataset_lines(tmp_path):
    return write_dataset(tmp_path / "examples.jsonl").read_text().splitlines()


@pytest.fixture
def aggregator(dataset_lines):
    return Aggregator(dataset_lines)  # type: ignore[abstract]  # a trainer makes no other calls


@pytest.fixture
def served(tmp_path):
    """Students of the aggregator's host."""
    return Students(tmp_path / "served")


@pytest.fixture
def target(aggregator, served):
    """Serve in another thread; yield the address."""

    def register(server):
        models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(served), server)
        evaluation_pb2_grpc.add_JobServiceServicer_to_server(aggregator, server)
        return [SERVICE]

    with in_thread(register) as address:
        yield address


@pytest.fixture
def settings(tmp_path, target):
    return TrainerSettings(
        aggregator_target=target,
        bind_address="127.0.0.1:0",
        heartbeat_seconds=0.05,
        cache_dir=tmp_path / "cache",
        train_device="cpu",
        model_roots=(),
        stop_grace=5.0,
    )


@pytest.fixture
def shutdown():
    return Shutdown(grace=5.0)


@pytest.fixture
def make_runner(target, settings, forked_trainings):
    channels = []

    def make(shutdown):
        channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        channels.append(channel)
        client = TrainingClient(
            evaluation_pb2_grpc.JobServiceStub(channel),
            models_pb2_grpc.ModelServiceStub(channel),
            worker="tester",
            shutdown=shutdown,
        )
        return TrainingRunner(client, shutdown, settings, TrainerMetrics(CollectorRegistry()))

    yield make
    for channel in channels:
        channel.close()


@pytest.fixture
def add_job(aggregator, dataset_lines):
    """Add a training of six steps, with a checkpoint after every second."""

    def add(job_id="a", **changes):
        content = {
            "lease": messages.Lease(job_id=job_id, token=7, seconds=30.0),
            "experiment_id": "e",
            "round": 1,
            "model": common_pb2.ModelRef(name="tiny-thicket"),
            "model_digest": resolve_checkpoint("tiny-thicket").digest,
            "dataset_digest": hashlib.sha256("\n".join(dataset_lines).encode()).hexdigest(),
            "examples": len(dataset_lines),
            "settings": common_pb2.TrainingSpec(
                method="full", batch_size=4, learning_rate=1e-4, checkpoint_steps=2
            ),
            "seed": 3,
        }
        job = messages.TrainJob(**{**content, **changes})
        aggregator.jobs[job_id] = job
        return job

    return add
