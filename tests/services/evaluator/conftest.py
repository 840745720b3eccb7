"""A real gRPC server with a job service that records its calls."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Engine, load_engine
from modnorm.errors import ModnormError, NotFoundError, StaleLeaseError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.methods import build_scale_map
from modnorm.sandbox import Runner
from modnorm.services.common.channels import CHANNEL_OPTIONS
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.services.evaluator.job_scoring import JobScorer
from modnorm.services.evaluator.metrics import EvaluatorMetrics
from modnorm.services.evaluator.shutdown import Shutdown, Watchdog
from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.columns import encode_rows
from modnorm.tasks.row_loading import load_data
from modnorm.v1 import common_pb2, evaluation_pb2_grpc
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import descriptor_to_proto
from tests.scripted_services import refuse, served
from tests.services.evaluator.run_job import AddJob, MakeRunner
from verification.labs.waiting import wait_until

ROWS = 5


@dataclass
class Aggregator(evaluation_pb2_grpc.JobServiceServicer):
    """A scripted job service that leases each job once."""

    rows: dict[str, Sequence[str]] = field(default_factory=dict)
    scale_maps: dict[str, str] = field(default_factory=dict)
    lineages: dict[str, Lineage] = field(default_factory=dict)
    """Lineage of each experiment."""
    generators: dict[str, str] = field(default_factory=dict)
    """Answers of finished jobs."""
    jobs: dict[str, messages.Job] = field(default_factory=dict)
    errors: dict[str, list[ModnormError | None]] = field(default_factory=dict)
    """Errors of the next calls by method; None for a successful call."""
    cancel: bool = False
    """Sent in the responses to heartbeats."""
    unfit: list[Sequence[str]] = field(default_factory=list)
    """Experiments that each claim leaves to others."""
    calls: Counter[str] = field(default_factory=Counter)
    heartbeats: list[messages.LeaseProgress] = field(default_factory=list)
    said: list[Sequence[str]] = field(default_factory=list)
    """Job ids of each call of heartbeats."""
    reports: dict[str, messages.ReportJobRequest] = field(default_factory=dict)
    failures: dict[str, messages.FailJobRequest] = field(default_factory=dict)

    def ClaimJob(self, request, context):  # noqa: N802 - the rpc's name
        """Lease the job with the name of the worker, else the first that it is not unfit for."""
        with _aborting(context):
            self._enter("ClaimJob")
        self.unfit.append(tuple(request.unfit_experiments))
        fit = [
            name
            for name, job in tuple(self.jobs.items())
            if job.experiment_id not in request.unfit_experiments
        ]
        job_id = request.worker if request.worker in self.jobs else (fit or [""])[0]
        return messages.ClaimJobResponse(job=self.jobs.pop(job_id, None))

    def Heartbeat(self, request, context):  # noqa: N802 - the rpc's name
        lost = ""
        try:
            self._enter("Heartbeat")
        except StaleLeaseError as error:
            lost = error.message
        except ModnormError as error:
            refuse(context, error)
        else:
            self.said.append([one.lease.job_id for one in request.leases])
            self.heartbeats.extend(request.leases)
        state = messages.LeaseState(cancel=self.cancel, lost=lost)
        return messages.HeartbeatResponse(leases=[state for _ in request.leases])

    def ReportJob(self, request, context):  # noqa: N802 - the rpc's name
        with _aborting(context):
            self._enter("ReportJob")
        self.reports[request.lease.job_id] = request
        return messages.ReportJobResponse()

    def FailJob(self, request, context):  # noqa: N802 - the rpc's name
        with _aborting(context):
            self._enter("FailJob")
        self.failures[request.lease.job_id] = request
        return messages.FailJobResponse()

    def FetchArtifact(self, request, context):  # noqa: N802 - the rpc's name
        rows = {digest: "\n".join(texts) for digest, texts in self.rows.items()}
        texts = {**rows, **self.scale_maps, **self.generators}
        with _aborting(context):
            self._enter("FetchArtifact")
            if request.digest not in texts:
                raise NotFoundError("no such artifact")
        content = texts[request.digest].encode()
        yield messages.FetchArtifactResponse(chunk=content[:100])
        yield messages.FetchArtifactResponse(chunk=content[100:])

    def FetchLineage(self, request, context):  # noqa: N802 - the rpc's name
        with _aborting(context):
            self._enter("FetchLineage")
        lineage = self.lineages[request.experiment_id]
        yield messages.FetchLineageResponse(origin_json=lineage.until(0).to_json())
        until = lineage.digests.index(request.digest)
        steps = [step.to_json() for step in lineage.steps[request.after : until]]
        yield messages.FetchLineageResponse(steps_json=steps)

    def keep_rows(self, texts: Sequence[str]) -> str:
        """Keep encoded rows; returns their digest."""
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        self.rows[digest] = texts
        return digest

    def wait_for(self, job_id: str) -> None:
        """Wait until a job is reported or failed."""
        wait_until(lambda: job_id in {*self.reports, *self.failures}, f"the end of {job_id}")

    def _enter(self, method: str) -> None:
        self.calls[method] += 1
        error = self.errors[method].pop(0) if self.errors.get(method) else None
        if error is not None:
            raise error


@contextmanager
def _aborting(context: grpc.ServicerContext) -> Iterator[None]:
    """Abort a call with the status of an error raised inside."""
    try:
        yield
    except ModnormError as error:
        refuse(context, error)


@pytest.fixture(scope="session")
def checkpoint() -> Checkpoint:
    return resolve_checkpoint("tiny-thicket")


@pytest.fixture(scope="session")
def scale_map(checkpoint: Checkpoint) -> ScaleMap:
    return build_scale_map("randopt", checkpoint)


@pytest.fixture
def aggregator(scale_map: ScaleMap) -> Aggregator:
    return Aggregator(scale_maps={scale_map.digest: scale_map.to_json()})


@pytest.fixture
def target(aggregator: Aggregator) -> Iterator[str]:
    add = evaluation_pb2_grpc.add_JobServiceServicer_to_server
    with served(aggregator, add=add) as target:
        yield target


@pytest.fixture
def shutdown() -> Shutdown:
    return Shutdown(grace=0.0)


@pytest.fixture
def client(target: str, shutdown: Shutdown) -> Iterator[AggregatorClient]:
    with grpc.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        stub = evaluation_pb2_grpc.JobServiceStub(channel)
        yield AggregatorClient(stub, worker="tester", shutdown=shutdown)


@pytest.fixture
def make_runner(
    client: AggregatorClient, shutdown: Shutdown, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeRunner]:
    made: list[JobRunner] = []

    def make(
        load: Callable[..., Engine] = load_engine,
        *,
        sandbox: Runner | None = None,
        metrics: EvaluatorMetrics | None = None,
        watchdog: Watchdog | None = None,
        **settings: Any,
    ) -> JobRunner:
        monkeypatch.setattr("modnorm.services.evaluator.model_cache.load_engine", load)
        scorer = JobScorer(
            client,
            EvaluatorSettings(**settings),
            watchdog=watchdog or Watchdog(float("inf")),
            sandbox=sandbox,
            metrics=metrics or EvaluatorMetrics(CollectorRegistry()),
        )
        made.append(JobRunner(client, shutdown, scorer, heartbeat_seconds=0.05))
        return made[-1]

    yield make
    for runner in made:
        runner.close()


@pytest.fixture
def runner(make_runner: MakeRunner) -> JobRunner:
    return make_runner()


@pytest.fixture
def add_job(aggregator: Aggregator, checkpoint: Checkpoint, scale_map: ScaleMap) -> AddJob:
    """Add a job of the bundled model and task."""
    task = get_task("countdown")
    spec = DataSpec(source="bundled:countdown-selection", limit=ROWS)
    rows = load_data(task, spec, field="task.selection").rows
    digest = aggregator.keep_rows(encode_rows(rows))

    def add(
        job_id: str = "a", *, radius: float = 0.005, engine: str = "auto", **changes: str | int
    ) -> messages.Job:
        descriptor = Descriptor("portable-v1", 3, "randopt", radius, scale_map.digest)
        job = messages.Job(
            lease=messages.Lease(job_id=job_id, token=7, seconds=30.0),
            experiment_id="e",
            model=common_pb2.ModelRef(name="tiny-thicket"),
            model_digest=checkpoint.digest,
            engine=common_pb2.EngineSpec(name=engine),
            task="countdown",
            scorer=task.scorer,
            max_tokens=8,
            descriptor=descriptor_to_proto(descriptor),
            split=messages.SPLIT_SELECTION,
            rows_digest=digest,
        )
        for name, value in changes.items():
            setattr(job, name, value)
        job.replay_digest = job.replay_digest or job.rows_digest
        aggregator.jobs[job_id] = job
        return job

    return add
