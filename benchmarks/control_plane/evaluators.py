"""Simulated evaluators: many in one process, over gRPC.

    python -m benchmarks.control_plane.evaluators --target HOST:PORT ...

Each has a connection, like a real evaluator. It claims a job, waits for
the time of the work, and reports invented answers. The fleet ends with the experiment
and prints its measurements as JSON. Idle evaluators ask for a job again after a moment, without
the messages of the broker.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import grpc.aio

from modnorm.client.connection import TERMINAL_STATES
from modnorm.errors import ModnormError, StaleLeaseError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.search.answers import Answer
from modnorm.services.common.channels import CHANNEL_OPTIONS
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1 import experiment_pb2
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.v1.experiment_pb2_grpc import ExperimentServiceStub
from modnorm.wire.answer_sheets import pack_answers
from modnorm.wire.status import from_rpc_error

if TYPE_CHECKING:
    from modnorm.v1.evaluation_pb2_grpc import JobServiceAsyncStub
    from modnorm.v1.experiment_pb2_grpc import ExperimentServiceAsyncStub

ResponseT = TypeVar("ResponseT")

SECONDS = 60.0
IDLE_SECONDS = 1.0
HEARTBEAT_SECONDS = 5.0
CHARACTERS = 40
"""Characters of a completion."""
SHEETS = 64
"""Different sheets of answers."""
ENVIRONMENT = {
    "engine": "simulated",
    "python": "3.11",
    "torch": "2.13.0",
    "device": "none",
    "dtype": "bfloat16",
    "threads": "1",
}


@dataclass
class Measured:
    """Measurements: end and seconds of each call by name, ends of reports, refusals."""

    calls: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: {"claim": [], "report": [], "heartbeat": []}
    )
    reported: list[float] = field(default_factory=list)
    unclaimed: int = 0
    stale: int = 0
    errors: list[str] = field(default_factory=list)
    report_bytes: int = 0
    cpu: float = 0.0


class Fleet:
    """Evaluators that share cached facts about rows."""

    def __init__(self, options: argparse.Namespace, measured: Measured) -> None:
        self._options = options
        self._measured = measured
        self._random = random.Random(1)
        self._counts: dict[str, asyncio.Task[int]] = {}
        self._reports: dict[str, messages.ReportJobRequest] = {}
        self._sheets: dict[str, list[bytes]] = {}
        self._stub: JobServiceAsyncStub

    async def run(self) -> None:
        """Work until the experiment has ended."""
        target = self._options.target
        async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
            self._stub = JobServiceStub(channel)
            work = list[asyncio.Task[None]]()
            for index in range(self._options.evaluators):
                work.append(asyncio.create_task(self._evaluate(index)))
                await asyncio.sleep(0.001)
            try:
                await self._wait_for_the_end(ExperimentServiceStub(channel))
            finally:
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)

    async def _wait_for_the_end(self, stub: "ExperimentServiceAsyncStub") -> None:
        request = experiment_pb2.GetExperimentRequest(id=self._options.experiment)
        while True:
            response = await stub.GetExperiment(request, timeout=SECONDS)
            if response.experiment.state in TERMINAL_STATES:
                return
            await asyncio.sleep(0.5)

    async def _evaluate(self, index: int) -> None:
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        async with grpc.aio.insecure_channel(self._options.target, options) as channel:
            stub: JobServiceAsyncStub = JobServiceStub(channel)
            while True:
                try:
                    await self._work(stub, f"evaluator-{index:04}")
                except grpc.RpcError as error:
                    self._note(from_rpc_error(error))

    def _note(self, error: ModnormError) -> None:
        if isinstance(error, StaleLeaseError):
            self._measured.stale += 1
        else:
            self._measured.errors.append(f"{type(error).__name__}: {error}")

    async def _work(self, stub: "JobServiceAsyncStub", worker: str) -> None:
        """Do the next job, or wait a moment if there is none."""
        asked = messages.ClaimJobRequest(worker=worker, version="0.1.0")
        claim = await self._timed(stub.ClaimJob(asked, timeout=SECONDS), "claim")
        if not claim.HasField("job"):
            self._measured.unclaimed += 1
            await asyncio.sleep(IDLE_SECONDS)
            return
        await self._think(stub, claim.job.lease)
        report = await self._report(claim.job, worker)
        await self._timed(stub.ReportJob(report, timeout=SECONDS), "report")
        self._measured.reported.append(time.perf_counter())

    async def _timed(self, call: Awaitable[ResponseT], name: str) -> ResponseT:
        start = time.perf_counter()
        response = await call
        end = time.perf_counter()
        self._measured.calls[name].append((end, end - start))
        return response

    async def _think(self, stub: "JobServiceAsyncStub", lease: messages.Lease) -> None:
        """Wait for the time of the work, with heartbeats if it is long."""
        left = self._options.work_seconds * self._random.uniform(0.5, 1.5)
        while left > HEARTBEAT_SECONDS:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            left -= HEARTBEAT_SECONDS
            beat = messages.HeartbeatRequest(leases=[messages.LeaseProgress(lease=lease)])
            await self._timed(stub.Heartbeat(beat, timeout=SECONDS), "heartbeat")
        await asyncio.sleep(left)

    async def _report(self, job: messages.Job, worker: str) -> messages.ReportJobRequest:
        report = messages.ReportJobRequest()
        report.CopyFrom(await self._made_up(job.rows_digest))
        report.lease.MergeFrom(job.lease)
        report.experiment_id, report.worker = job.experiment_id, worker
        report.descriptor.MergeFrom(job.descriptor)
        if not report.descriptor.coefficients:
            active = await self._counted(
                report.descriptor.scale_map_digest,
                lambda text: len(ScaleMap.from_json(text).active),
            )
            report.descriptor.coefficients.extend([self._random.random()] * active)
        report.answers = self._random.choice(self._sheets[job.rows_digest])
        self._measured.report_bytes = report.ByteSize()
        return report

    async def _made_up(self, rows_digest: str) -> messages.ReportJobRequest:
        """Return the common part of all reports about some rows."""
        if rows_digest not in self._reports:
            rows = range(await self._counted(rows_digest, lambda text: text.count("\n") + 1))
            self._sheets[rows_digest] = [self._sheet(rows) for _ in range(SHEETS)]
            self._reports[rows_digest] = messages.ReportJobRequest(
                environment=ENVIRONMENT,
                generate_seconds=self._options.work_seconds,
                switch_seconds=0.01,
                score_seconds=0.01,
            )
        return self._reports[rows_digest]

    def _sheet(self, rows: Iterable[int]) -> bytes:
        """Return answers that all have one random reward."""
        reward, text = self._random.random(), "x" * CHARACTERS
        return pack_answers(
            Answer(
                row=row,
                completion=text,
                vote=str(row % 3),
                reward=reward,
                correct=row % 2 == 0,
                tokens=CHARACTERS // 4,
                truncated=False,
            )
            for row in rows
        )

    async def _counted(self, digest: str, count: Callable[[str], int]) -> int:
        """Return a number of an artifact, which all evaluators fetch once."""
        if digest not in self._counts:
            self._counts[digest] = asyncio.create_task(self._count(digest, count))
        return await self._counts[digest]

    async def _count(self, digest: str, count: Callable[[str], int]) -> int:
        request = messages.FetchArtifactRequest(digest=digest)
        stream = self._stub.FetchArtifact(request, timeout=SECONDS)
        return count(b"".join([response.chunk async for response in stream]).decode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True, help="HOST:PORT of the aggregator")
    parser.add_argument("--experiment", required=True, help="id of the experiment")
    parser.add_argument("--evaluators", type=int, required=True)
    parser.add_argument("--work-seconds", type=float, required=True, help="mean of a job's work")
    options = parser.parse_args()
    measured = Measured()
    began = time.process_time()
    asyncio.run(Fleet(options, measured).run())
    measured.cpu = time.process_time() - began
    print(json.dumps(vars(measured)))


if __name__ == "__main__":
    main()
