"""A real gRPC server with a job service that remembers what it was told."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn, cast

import grpc
import pytest
from grpc_status import rpc_status

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.errors import ModnormError, NotFoundError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.methods import build_scale_map
from modnorm.sandbox import Runner
from modnorm.spec import DataSpec, Masses
from modnorm.tasks import get_task
from modnorm.tasks.data import encode_rows, load_rows
from modnorm.v1 import common_pb2, evaluation_pb2_grpc
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.conversions import descriptor_to_proto
from modnorm.wire.status import to_status
from services.common.channels import CHANNEL_OPTIONS
from services.evaluator.evaluation import Evaluator
from services.evaluator.gateway import JobGateway
from services.evaluator.jobs import JobRunner
from services.evaluator.metrics import EvaluatorMetrics
from services.evaluator.models import Loading
from services.evaluator.pulse import Pulse
from services.evaluator.shutdown import Shutdown
from verification.labs.waiting import wait_until

ROWS = 5
HERE = Loading(roots=())
MakeRunner = Callable[..., JobRunner]


@dataclass
class Report:
    header: messages.ReportHeader
    answers: list[messages.Answer]
    parts: int


def _set(event: threading.Event) -> threading.Event:
    event.set()
    return event


class _RefusedError(Exception):
    def __init__(self, status: bytes) -> None:
        self.status = status


class _Refusing:
    """The context of a call on a stream: refuses that call alone."""

    @staticmethod
    def abort_with_status(status: grpc.Status) -> NoReturn:
        details = dict(status.trailing_metadata or ())["grpc-status-details-bin"]
        assert isinstance(details, bytes)
        raise _RefusedError(details)


def _refusing() -> grpc.ServicerContext:
    return cast("grpc.ServicerContext", _Refusing())


@dataclass
class Aggregator(evaluation_pb2_grpc.JobServiceServicer):
    """Leases each job once, and does as it is told otherwise."""

    rows: dict[str, list[str]] = field(default_factory=dict)
    scale_maps: dict[str, str] = field(default_factory=dict)
    lineages: dict[str, Lineage] = field(default_factory=dict)
    """By experiment."""
    generators: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, messages.Job] = field(default_factory=dict)
    errors: dict[str, list[ModnormError | None]] = field(default_factory=dict)
    """Method -> errors of its next calls, None of one that is answered."""
    cancel: bool = False
    bar: messages.Bar | None = None
    """What heartbeats are answered with."""
    calls: Counter[str] = field(default_factory=Counter)
    heartbeats: list[messages.HeartbeatRequest] = field(default_factory=list)
    """Of each lease."""
    said: list[Sequence[str]] = field(default_factory=list)
    """The jobs that each message of heartbeats is about."""
    together: bool = True
    """Whether it hears of several leases in one message."""
    reports: dict[str, Report] = field(default_factory=dict)
    failures: dict[str, messages.FailJobRequest] = field(default_factory=dict)
    streams: bool = True
    """Whether it has the rpc for calls over a stream."""
    opened: int = 0
    """Streams that were opened."""
    carries: bool = True
    """Whether it hears two calls in one message."""
    carried: int = 0
    """Such messages that it heard."""
    endurance: int | None = None
    """Calls after which a stream breaks."""
    answering: threading.Event = field(default_factory=lambda: _set(threading.Event()))
    """Cleared while no call on a stream is answered."""

    def ClaimJob(  # noqa: N802 - named by the contract
        self, request: messages.ClaimJobRequest, context: grpc.ServicerContext
    ) -> messages.ClaimJobResponse:
        self._enter("ClaimJob", context)
        return messages.ClaimJobResponse(job=self.jobs.pop(request.job_id, None))

    def Heartbeat(  # noqa: N802 - named by the contract
        self, request: messages.HeartbeatRequest, context: grpc.ServicerContext
    ) -> messages.HeartbeatResponse:
        self.calls["Heartbeat"] += 1
        self.said.append([one.lease.job_id for one in (request, *request.also)])
        answer = self._extended(request, context, alone=not (self.together and request.also))
        for one in request.also if self.together else ():
            answer.also.append(self._extended(one, context, alone=False))
        return answer

    def _extended(
        self, request: messages.HeartbeatRequest, context: grpc.ServicerContext, *, alone: bool
    ) -> messages.HeartbeatResponse:
        try:
            self._fail_if_told("Heartbeat", context if alone else _refusing())
        except _RefusedError as error:
            if alone:
                raise
            return messages.HeartbeatResponse(status=error.status)
        self.heartbeats.append(request)
        return messages.HeartbeatResponse(cancel=self.cancel, bar=self.bar)

    def ReportJob(  # noqa: N802 - named by the contract
        self, request_iterator: Iterator[messages.ReportJobRequest], context: grpc.ServicerContext
    ) -> messages.ReportJobResponse:
        self._enter("ReportJob", context)
        parts = list(request_iterator)
        answers = [answer for part in parts[1:] for answer in part.answers.answers]
        report = Report(parts[0].header, answers, len(parts))
        self.reports[report.header.lease.job_id] = report
        return messages.ReportJobResponse()

    def FailJob(  # noqa: N802 - named by the contract
        self, request: messages.FailJobRequest, context: grpc.ServicerContext
    ) -> messages.FailJobResponse:
        self._enter("FailJob", context)
        self.failures[request.lease.job_id] = request
        return messages.FailJobResponse()

    def Work(  # noqa: N802 - named by the contract
        self, request_iterator: Iterator[messages.WorkRequest], context: grpc.ServicerContext
    ) -> Iterator[messages.WorkResponse]:
        if not self.streams:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such rpc")
        self.opened += 1
        for call in islice(request_iterator, self.endurance):
            self.answering.wait()
            answer = self._answer(call)
            if self.carries and call.HasField("also"):
                self.carried += 1
                answer.also.CopyFrom(self._answer(call.also))
            yield answer
        if self.endurance:
            context.abort(grpc.StatusCode.UNAVAILABLE, "broken")

    def _answer(self, call: messages.WorkRequest) -> messages.WorkResponse:
        refusing = _refusing()
        try:
            match call.WhichOneof("call"):
                case "claim":
                    return messages.WorkResponse(claim=self.ClaimJob(call.claim, refusing))
                case "heartbeat":
                    answer = self.Heartbeat(call.heartbeat, refusing)
                    return messages.WorkResponse(heartbeat=answer)
                case "report":
                    stored = self.ReportJob(iter(call.report.parts), refusing)
                    return messages.WorkResponse(report=stored)
                case _:
                    return messages.WorkResponse(fail=self.FailJob(call.fail, refusing))
        except _RefusedError as error:
            return messages.WorkResponse(status=error.status)

    def FindJobs(  # noqa: N802 - named by the contract
        self, request: messages.FindJobsRequest, context: grpc.ServicerContext
    ) -> messages.FindJobsResponse:
        self._enter("FindJobs", context)
        found = [key for key, job in self.jobs.items() if job.model_digest == request.model_digest]
        return messages.FindJobsResponse(job_ids=found)

    def FetchRows(  # noqa: N802 - named by the contract
        self, request: messages.FetchRowsRequest, context: grpc.ServicerContext
    ) -> Iterator[messages.FetchRowsResponse]:
        self._enter("FetchRows", context)
        rows = self.rows[request.rows_digest]
        yield messages.FetchRowsResponse(rows_json=rows[:2])
        yield messages.FetchRowsResponse(rows_json=rows[2:])

    def GetScaleMap(  # noqa: N802 - named by the contract
        self, request: messages.GetScaleMapRequest, context: grpc.ServicerContext
    ) -> messages.GetScaleMapResponse:
        self._enter("GetScaleMap", context)
        if request.digest not in self.scale_maps:
            self._abort(NotFoundError("no such scale map"), context)
        return messages.GetScaleMapResponse(json=self.scale_maps[request.digest])

    def FetchLineage(  # noqa: N802 - named by the contract
        self, request: messages.FetchLineageRequest, context: grpc.ServicerContext
    ) -> Iterator[messages.FetchLineageResponse]:
        self._enter("FetchLineage", context)
        lineage = self.lineages[request.experiment_id]
        yield messages.FetchLineageResponse(origin_json=lineage.until(0).to_json())
        until = lineage.digests.index(request.digest)
        steps = [step.to_json() for step in lineage.steps[request.after : until]]
        yield messages.FetchLineageResponse(steps_json=steps)

    def FetchGenerator(  # noqa: N802 - named by the contract
        self, request: messages.FetchGeneratorRequest, context: grpc.ServicerContext
    ) -> Iterator[messages.FetchGeneratorResponse]:
        self._enter("FetchGenerator", context)
        content = self.generators[request.digest].encode()
        yield messages.FetchGeneratorResponse(chunk=content[:100])
        yield messages.FetchGeneratorResponse(chunk=content[100:])

    def wait_for(self, job_id: str) -> None:
        """Wait until a job is reported or failed."""
        wait_until(lambda: job_id in {*self.reports, *self.failures}, f"the end of {job_id}")

    def _enter(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls[method] += 1
        self._fail_if_told(method, context)

    def _fail_if_told(self, method: str, context: grpc.ServicerContext) -> None:
        error = self.errors[method].pop(0) if self.errors.get(method) else None
        if error is not None:
            self._abort(error, context)

    @staticmethod
    def _abort(error: ModnormError, context: grpc.ServicerContext) -> None:
        context.abort_with_status(rpc_status.to_status(to_status(error)))


@pytest.fixture(scope="session")
def checkpoint() -> Checkpoint:
    return resolve_checkpoint("tiny-thicket")


@pytest.fixture(scope="session")
def scale_map(checkpoint: Checkpoint) -> ScaleMap:
    return build_scale_map(
        "randopt",
        config=checkpoint.config,
        model_digest=checkpoint.digest,
        masses=Masses(),
        weights=None,
        sensitivities=None,
    )


@pytest.fixture
def aggregator(scale_map: ScaleMap) -> Aggregator:
    return Aggregator(scale_maps={scale_map.digest: scale_map.to_json()})


@pytest.fixture
def target(aggregator: Aggregator) -> Iterator[str]:
    with ThreadPoolExecutor() as threads:
        server = grpc.server(threads)
        evaluation_pb2_grpc.add_JobServiceServicer_to_server(aggregator, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


@pytest.fixture
def shutdown() -> Shutdown:
    return Shutdown(grace=0.0)


@pytest.fixture
def gateway(target: str, shutdown: Shutdown) -> Iterator[JobGateway]:
    with grpc.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        stub = evaluation_pb2_grpc.JobServiceStub(channel)
        yield JobGateway(stub, worker="tester", shutdown=shutdown)


@pytest.fixture
def make_runner(gateway: JobGateway, shutdown: Shutdown) -> Iterator[MakeRunner]:
    made: list[JobRunner] = []

    def make(
        loading: Loading = HERE,
        *,
        sandbox: Runner | None = None,
        metrics: EvaluatorMetrics | None = None,
        pulse: Pulse | None = None,
        patience: float = 0.0,
        resting: int = 0,
    ) -> JobRunner:
        evaluator = Evaluator(gateway, loading, pulse=pulse, sandbox=sandbox, metrics=metrics)
        made.append(
            JobRunner(
                gateway,
                shutdown,
                evaluator,
                heartbeat_seconds=0.05,
                model_patience=patience,
                resting=resting,
            )
        )
        return made[-1]

    yield make
    for runner in made:
        runner.close()


@pytest.fixture
def runner(make_runner: MakeRunner) -> JobRunner:
    return make_runner()


@pytest.fixture
def add_job(
    aggregator: Aggregator, checkpoint: Checkpoint, scale_map: ScaleMap
) -> Callable[..., messages.Job]:
    """Put a job of the bundled model and task on offer."""
    task = get_task("countdown")
    spec = DataSpec(source="bundled:countdown-selection", limit=ROWS)
    texts = encode_rows(load_rows(task, spec, field="task.selection"))
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    aggregator.rows[digest] = texts

    def add(job_id: str = "a", *, radius: float = 0.005, **changes: str | int) -> messages.Job:
        descriptor = Descriptor("portable-v1", 3, "randopt", radius, scale_map.digest)
        job = messages.Job(
            lease=messages.Lease(job_id=job_id, token=7, seconds=30.0),
            experiment_id="e",
            model=common_pb2.ModelRef(name="tiny-thicket"),
            model_digest=checkpoint.digest,
            engine="auto",
            task="countdown",
            scorer=task.scorer,
            max_tokens=32,
            descriptor=descriptor_to_proto(descriptor),
            split=messages.SPLIT_SELECTION,
            rows_digest=digest,
        )
        for name, value in changes.items():
            setattr(job, name, value)
        aggregator.jobs[job_id] = job
        return job

    return add
