"""An aggregator with real services, and a worker without a model."""

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from modnorm.analysis.run_data import CandidateRow
from modnorm.errors import ModnormError, StaleLeaseError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.search.ranking import select_experts
from modnorm.search.voting import plurality
from modnorm.services.aggregator.experiments.run_writing import candidate_row
from modnorm.services.aggregator.server import Aggregator
from modnorm.services.aggregator.storage.tables import Split
from modnorm.services.calibrator.server import build as build_calibrator
from modnorm.services.common.channels import open_service_channel
from modnorm.services.common.service_process import ANY_PORT, start_service
from modnorm.services.common.settings import (
    AggregatorSettings,
    CalibratorSettings,
    SamplerSettings,
)
from modnorm.services.sampler.server import build as build_sampler
from modnorm.spec import parse_spec
from modnorm.v1 import evaluation_pb2, evaluation_pb2_grpc, experiment_pb2, experiment_pb2_grpc
from modnorm.wire.answer_sheets import pack_answers
from modnorm.wire.connection import Credentials
from modnorm.wire.conversions import spec_to_proto
from modnorm.wire.status import from_rpc_error
from tests.services.aggregator.world import catalog, directories, finished, judged, world  # noqa: F401 - fixtures of all tests here
from verification.labs.bundled_tasks import bundled_task
from verification.labs.waiting import HANG_SECONDS


@pytest.fixture
def database_url(request, tmp_path) -> str:
    """An empty database: SQLite, or in turn each kind for tests marked by `on_both_databases`."""
    if getattr(request, "param", "sqlite") == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/modnorm.db"


def make_spec(**changes: object) -> experiment_pb2.ExperimentSpec:
    """Return a small spec; `task__limit=1` changes one field of a section."""
    content: dict[str, Any] = {
        "model": "tiny-thicket",
        "task": bundled_task("gsm8k", selection=5, heldout=7, max_tokens=16),
        "method": {"name": "randopt", "sigma": 0.01},
        "population": {"size": 6, "prefixes": [3, 6], "ensemble_sizes": [1, 3], "seed": 5},
        "failures": {"max_attempts": 3},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            content[section] = {**content[section], name: value}
        else:
            content[section] = value
    return spec_to_proto(parse_spec(content))


class Lab:
    """Stubs of one aggregator, and its settings."""

    def __init__(self, aggregator, settings, channel):
        self.aggregator = aggregator
        self.settings = settings
        self.channel = channel
        self.experiments = experiment_pb2_grpc.ExperimentServiceStub(channel)
        self.jobs = evaluation_pb2_grpc.JobServiceStub(channel)

    @asynccontextmanager
    async def without_retries(self):
        """The lab for calls that fail: each would repeat all retries of the aggregator's own."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.aggregator.port}") as channel:
            yield Lab(self.aggregator, self.settings, channel)

    async def die(self):
        """Leave the database as a killed process does; calls are still answered."""
        for task in self.aggregator._background:
            task.cancel()
        await asyncio.to_thread(self.aggregator._sole.release)

    async def create(self, message, request_id="request"):
        request = experiment_pb2.CreateExperimentRequest(request_id=request_id, spec=message)
        return (await self.experiments.CreateExperiment(request, timeout=HANG_SECONDS)).experiment

    async def heartbeat(self, lease, **named):
        progress = evaluation_pb2.LeaseProgress(lease=lease, **named)
        request = evaluation_pb2.HeartbeatRequest(leases=[progress])
        (state,) = (await self.jobs.Heartbeat(request, timeout=HANG_SECONDS)).leases
        if state.lost:
            raise StaleLeaseError(state.lost)
        return state

    async def fail(self, lease, kind, reason="broken", **named):
        kind = evaluation_pb2.FailureKind.Value(f"FAILURE_KIND_{kind}")
        request = evaluation_pb2.FailJobRequest(lease=lease, kind=kind, reason=reason, **named)
        await self.jobs.FailJob(request, timeout=HANG_SECONDS)

    async def get(self, experiment_id):
        request = experiment_pb2.GetExperimentRequest(id=experiment_id)
        return (await self.experiments.GetExperiment(request, timeout=HANG_SECONDS)).experiment

    async def watch(self, experiment_id, cursor=0):
        request = experiment_pb2.WatchExperimentRequest(id=experiment_id, cursor=cursor)
        async for event in self.experiments.WatchExperiment(request, timeout=HANG_SECONDS):
            yield event

    async def select(self, message, request_id="request"):
        """Create an experiment and wait until its selection has begun."""
        created = await self.create(message, request_id)
        async for event in self.watch(created.id):
            if event.state == experiment_pb2.EXPERIMENT_STATE_SELECTING:
                return created
        raise AssertionError(await self.get(created.id))

    async def finish(self, experiment_id, *workers):
        """Let workers work until an experiment has ended; return its events."""
        async with self.working(*workers):
            return [event async for event in self.watch(experiment_id)]

    async def candidates(self, experiment_id):
        """The candidates so far, the base first, each with its descriptor."""
        results = self.aggregator._experiment_store
        found = await asyncio.to_thread(results.candidates, experiment_id)
        return [
            SimpleNamespace(
                descriptor=one.candidate.descriptor,
                **{name: getattr(row, name) for name in CandidateRow.__dataclass_fields__},
            )
            for one in found
            for row in [candidate_row(one)]
        ]

    def worker(self, **named):
        return SyntheticWorker(self.channel, **named)

    async def file(self, experiment_id, name, offset=0):
        request = experiment_pb2.GetRunFileRequest(
            experiment_id=experiment_id, name=name, offset=offset
        )
        stream = self.experiments.GetRunFile(request, timeout=HANG_SECONDS)
        return b"".join([response.chunk async for response in stream])

    async def lineage(self, experiment_id):
        """The lineage of the reported state, or of the last state so far."""
        experiments = self.aggregator._experiment_store
        record = await asyncio.to_thread(experiments.get, experiment_id)
        reported = [state.lineage for state in record.states if state.reported]
        return await asyncio.to_thread(experiments.lineage, experiment_id, *reported)

    async def cancel(self, experiment_id):
        request = experiment_pb2.CancelExperimentRequest(id=experiment_id)
        response = await self.experiments.CancelExperiment(request, timeout=HANG_SECONDS)
        return response.experiment

    async def list(self, **page):
        request = experiment_pb2.ListExperimentsRequest(**page)
        return await self.experiments.ListExperiments(request, timeout=HANG_SECONDS)

    async def check_results(self, experiment):
        """Compare stored results with those of the synthetic answers."""
        candidates = await self.candidates(experiment.id)
        assert [one.index for one in candidates] == list(range(-1, 6))
        assert all(one.state == "scored" for one in candidates)
        rewards = [one.selection_reward for one in candidates if one.index >= 0]
        expected = select_experts(rewards, (3, 6), (1, 3))
        found = {
            (one.population, one.ensemble_size): tuple(one.experts) for one in experiment.ensembles
        }
        assert found == expected
        assert experiment.base.selection_reward == candidates[0].selection_reward
        assert experiment.base.heldout_metric == candidates[0].heldout_metric
        for ensemble in experiment.ensembles:
            await self.check_votes(experiment.id, ensemble)

    async def answers(self, experiment_id, candidate, split):
        results = self.aggregator._experiment_store
        return await asyncio.to_thread(results.answers, experiment_id, candidate, split)

    async def check_votes(self, experiment_id, ensemble):
        sheets = [
            await self.answers(experiment_id, expert, Split.HELDOUT) for expert in ensemble.experts
        ]
        right = 0
        for given in zip(*sheets, strict=True):
            vote = plurality([one.vote for one in given], [one.correct for one in given])
            right += vote.correct
        assert ensemble.correct == right
        assert ensemble.metric == right / 7

    @staticmethod
    @asynccontextmanager
    async def working(*workers):
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    @staticmethod
    @asynccontextmanager
    async def raises(kind, field=None):
        """Expect an error of exactly this kind; it is the `error` of what this yields."""
        met = SimpleNamespace()
        with pytest.raises((grpc.aio.AioRpcError, ModnormError)) as caught:
            yield met
        error = caught.value
        met.error = from_rpc_error(error) if isinstance(error, grpc.RpcError) else error
        assert type(met.error) is kind, met.error
        if field:
            assert getattr(met.error, "field", None) == field, met.error


class SyntheticWorker:
    """Claims jobs and answers them from the candidate's seed, without a model."""

    def __init__(self, channel, name="worker"):
        self.jobs = evaluation_pb2_grpc.JobServiceStub(channel)
        self.name = name
        self.reports = []

    async def run(self):
        while True:
            await self.report(await self.claim_next())

    async def claim_next(self):
        async with asyncio.timeout(HANG_SECONDS):
            while (job := await self.claim()) is None:  # noqa: ASYNC110 - as workers do
                await asyncio.sleep(0.02)
            return job

    async def claim(self, **changes):
        request = evaluation_pb2.ClaimJobRequest(worker=self.name, **changes)
        claim = await self.jobs.ClaimJob(request, timeout=HANG_SECONDS)
        return claim.job if claim.HasField("job") else None

    async def report(self, job):
        await self.jobs.ReportJob(await self.report_of(job), timeout=HANG_SECONDS)
        self.reports.append(job.lease.job_id)

    async def report_of(self, job):
        rows = await self.rows(job.rows_digest)
        return evaluation_pb2.ReportJobRequest(
            lease=job.lease,
            experiment_id=job.experiment_id,
            descriptor=await self.resolved(job),
            worker=self.name,
            environment={"engine": "made up", "rows": job.rows_digest},
            answers=pack_answers(answers_of(job.descriptor, rows)),
        )

    async def rows(self, digest):
        text = await self.artifact(digest)
        assert hashlib.sha256(text.encode()).hexdigest() == digest
        return [json.loads(row) for row in text.split("\n")]

    async def artifact(self, digest):
        request = evaluation_pb2.FetchArtifactRequest(digest=digest)
        stream = self.jobs.FetchArtifact(request, timeout=HANG_SECONDS)
        return b"".join([response.chunk async for response in stream]).decode()

    async def resolved(self, job):
        if not job.descriptor.coefficients:
            digest = job.descriptor.scale_map_digest
            active = len(ScaleMap.from_json(await self.artifact(digest)).active)
            job.descriptor.coefficients.extend(0.25 * one for one in range(active))
        return job.descriptor


def answers_of(descriptor, rows):
    return [answer_of(descriptor, index, row) for index, row in enumerate(rows)]


def answer_of(descriptor, index, row):
    draw = hashlib.sha256(f"{descriptor.method}/{descriptor.seed}/{index}".encode()).digest()[0]
    wrong = "no idea" if draw > 230 else f"#### {draw % 3}"
    return judged(index, row, f"#### {row['answer']}" if draw < 120 else wrong)


@asynccontextmanager
async def upstream(tmp_path):
    """Start the real sampler and calibrator."""
    given = {"bind_address": ANY_PORT, "cache_dir": tmp_path / "cache", "model_roots": None}
    sampler = build_sampler(SamplerSettings(**given, stop_grace=0))
    calibrator = build_calibrator(CalibratorSettings(**given, stop_grace=0))
    async with AsyncExitStack() as stack:
        yield {
            "sampler_target": await start_service(sampler, stack),
            "calibrator_target": await start_service(calibrator, stack),
        }


@asynccontextmanager
async def running(settings):
    """Run an aggregator."""
    aggregator = Aggregator(settings)
    await aggregator.start()
    try:
        async with open_service_channel(f"127.0.0.1:{aggregator.port}", Credentials()) as channel:
            yield Lab(aggregator, settings, channel)
    finally:
        await aggregator.stop()


@pytest.fixture
def spec():
    return make_spec


@pytest.fixture
def another_aggregator():
    """Start an aggregator after the lab's: a function of settings."""
    return running


@pytest.fixture
def start_lab(tmp_path):
    """Start a lab: a function of a database URL and settings that differ."""

    @asynccontextmanager
    async def start(database_url=f"sqlite:///{tmp_path}/lab.db", **changes):
        async with upstream(tmp_path) as targets:
            settings = AggregatorSettings(
                bind_address="127.0.0.1:0",
                database_url=database_url,
                data_roots=(tmp_path,),
                run_dir=tmp_path / "lab-runs",  # an aggregator removes what others wrote
                stop_grace=0.5,
                **{"broker_url": "memory://", "reap_seconds": 0.1, **targets, **changes},
            )
            async with running(settings) as lab:
                yield lab

    return start
