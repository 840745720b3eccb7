"""SandboxService: runs a bounded number of programs at a time and returns verdicts."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from typing_extensions import override

from modnorm.sandbox import Isolation, ProgramOutcome, Sandbox, Verdict
from modnorm.services.common.metrics import CALL_BUCKETS
from modnorm.v1 import sandbox_pb2, sandbox_pb2_grpc
from modnorm.wire.remote_sandbox import isolation_to_proto, outcome_to_proto, program_from_proto

SERVICE = "modnorm.v1.SandboxService"


class SandboxMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_progress = Gauge(
            "modnorm_sandbox_programs_in_progress",
            "Programs that run or wait to run.",
            registry=registry,
        )
        self._verdicts = Counter(
            "modnorm_sandbox_verdicts", "Programs judged.", ("verdict",), registry=registry
        )
        for verdict in Verdict:
            self._verdicts.labels(verdict)
        self._seconds = Histogram(
            "modnorm_sandbox_program_seconds",
            "Wall time of a program, without its wait in the queue.",
            buckets=CALL_BUCKETS,
            registry=registry,
        )
        self._isolated = Gauge(
            "modnorm_sandbox_isolated",
            "1 if all guarantees held at the last measurement; programs run only then.",
            registry=registry,
        )

    def record_outcome(self, outcome: ProgramOutcome) -> None:
        """Count a verdict and its time."""
        self._verdicts.labels(outcome.verdict).inc()
        self._seconds.observe(outcome.wall_seconds)

    def record_isolation(self, isolation: Isolation) -> None:
        """Store whether a measurement found all guarantees."""
        self._isolated.set(isolation.healthy)


class SandboxServicer(sandbox_pb2_grpc.SandboxServiceServicer):
    """Executes programs in one sandbox."""

    def __init__(self, sandbox: Sandbox, concurrency: int, metrics: SandboxMetrics) -> None:
        self._sandbox = sandbox
        self._metrics = metrics
        self._executor = ThreadPoolExecutor(concurrency, thread_name_prefix="sandbox")

    @override
    async def Execute(
        self, request: sandbox_pb2.ExecuteRequest, context: object
    ) -> sandbox_pb2.ExecuteResponse:
        """Run one program and return its verdict."""
        program = program_from_proto(request)
        loop = asyncio.get_running_loop()
        with self._metrics.in_progress.track_inprogress():
            outcome = await loop.run_in_executor(self._executor, self._sandbox.execute, program)
        self._metrics.record_outcome(outcome)
        return outcome_to_proto(outcome)

    @override
    async def GetIsolation(
        self, request: sandbox_pb2.GetIsolationRequest, context: object
    ) -> sandbox_pb2.GetIsolationResponse:
        return isolation_to_proto(await self.measure())

    async def measure(self) -> Isolation:
        """Measure the isolation and record whether all guarantees hold."""
        isolation = await asyncio.to_thread(self._sandbox.measure)
        self._metrics.record_isolation(isolation)
        return isolation

    def close(self) -> None:
        """Cancel waiting programs; end running ones and the sandbox."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._sandbox.close()
