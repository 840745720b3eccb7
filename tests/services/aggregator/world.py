"""A database with synthetic experiments, and answers computed from a candidate's seed."""

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from sqlmodel import col, select

from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.answers import BASE_INDEX, Answer, answer_fields
from modnorm.services.aggregator.experiments.admission import Admission
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.experiments.run_directories import RunDirectories
from modnorm.services.aggregator.jobs.job_store import JobStore
from modnorm.services.aggregator.jobs.leases import Claim, lease
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.lookups import (
    StoredText,
    find_experiment,
    is_candidate_of_job,
)
from modnorm.services.aggregator.storage.tables import (
    Candidate,
    Experiment,
    FailureKind,
    Job,
    JobState,
    Split,
    unpack_coefficients,
)
from modnorm.services.aggregator.web.lab_catalog import LabCatalog
from modnorm.spec import ExperimentSpec, parse_spec
from modnorm.tasks import get_task
from modnorm.tasks.protocol import Row
from modnorm.v1.evaluation_pb2 import (
    ClaimJobRequest,
    Lease,
    LeaseProgress,
    LeaseState,
    ReportJobRequest,
)
from modnorm.wire.answer_sheets import pack_text
from modnorm.wire.conversions import descriptor_to_proto
from verification.labs.waiting import HANG_SECONDS

TASK = get_task("gsm8k")
LEASE_SECONDS = 60.0
T = TypeVar("T")
on_both_databases = pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)
"""Runs a test on SQLite and on Postgres, for statements that lock or skip rows."""


def synthetic_answers(seed: int, rows: int) -> tuple[Answer, ...]:
    """Answer the rows `{"answer": str(row)}` correctly, wrongly or not at all, by the seed."""
    return tuple(_answer(seed, row) for row in range(rows))


def _answer(seed: int, row: int) -> Answer:
    draw = hashlib.sha256(f"{seed}/{row}".encode()).digest()[0]
    completion = f"#### {row}" if draw < 110 else f"#### {row + draw % 3}" if draw < 200 else "?"
    return judged(row, {"answer": str(row)}, completion)


def judged(index: int, row: Row, completion: str) -> Answer:
    judgement = TASK.judge(row, completion)
    return Answer(
        row=index,
        completion=completion,
        **asdict(judgement),
        tokens=len(completion),
        truncated=False,
    )


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Make calls in threads of their own at one moment; return their results."""
    start = threading.Barrier(len(calls))

    def make(call: Callable[[], T]) -> T:
        start.wait(HANG_SECONDS)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(make, calls))


def rows_text(count: int) -> StoredText:
    lines = [
        json.dumps({"answer": str(row), "question": f"Say {row}."}, separators=(",", ":"))
        for row in range(count)
    ]
    return StoredText.of("\n".join(lines))


def scale_map(method: str, active: int) -> ScaleMap:
    tensors = [
        TensorScale(
            name=f"layer.{index}",
            shape=(2, 2),
            group="mlp",
            role="down",
            layer=index,
            norm=Norm.UNIT,
            mass=1.0,
            base_scale=1.0,
            correction=1.0,
            scale=1.0 if index < active else None,
        )
        for index in range(2)
    ]
    return ScaleMap(method, "m" * 64, tuple(tensors))


MAP, BASE_MAP = scale_map("randopt", 2), scale_map("base", 0)


@dataclass(frozen=True)
class Report:
    """A worker's report, whose fields tests change."""

    job_id: str
    token: int
    descriptor: Descriptor
    answers: Sequence[Answer]
    generate_seconds: float = 0.2
    normaliser: float = 0.0

    @property
    def message(self) -> ReportJobRequest:
        sheet = json.dumps(list(map(answer_fields, self.answers)))  # also with NaN
        return ReportJobRequest(
            lease=Lease(job_id=self.job_id, token=self.token),
            worker="w",
            descriptor=descriptor_to_proto(self.descriptor),
            answers=pack_text(sheet),
            environment={"engine": "synthetic"},
            switch_seconds=0.1,
            generate_seconds=self.generate_seconds,
            score_seconds=0.3,
            normaliser=self.normaliser,
        )


class SingleCalls(JobStore):
    """A job store with single claims, and single reports, which raise their errors."""

    def claim(
        self, worker: str, model_digest: str = "", unfit: Collection[str] = ()
    ) -> Claim | None:
        asked = ClaimJobRequest(worker=worker, model_digest=model_digest, unfit_experiments=unfit)
        (claim,) = self.claim_all([asked])
        if isinstance(claim, Exception):
            raise claim
        return claim

    def report_all(
        self, reports: Sequence[Report | ReportJobRequest]
    ) -> Sequence[Change | Exception]:
        return super().report_all(
            [one.message if isinstance(one, Report) else one for one in reports]
        )

    def report(self, report: Report) -> Change:
        (answer,) = self.report_all([report])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pending(self, experiment_id: str | None = None) -> list[str]:
        """Return the ids of pending jobs: oldest experiment first, in the order of leases."""
        query = (
            select(Job.id)
            .join(Experiment, col(Experiment.id) == col(Job.experiment_id))
            .where(Job.state == JobState.PENDING)
            .order_by(col(Experiment.create_time), col(Job.attempts), col(Job.place))
        )
        if experiment_id is not None:
            query = query.where(Job.experiment_id == experiment_id)
        with self._database.read() as session:
            return list(session.exec(query))

    def claim_job(self, job_id: str, worker: str = "w") -> Claim | None:
        """Lease a job that a test names; None if it is not pending."""
        query = (
            select(Job, Candidate, Experiment)
            .join(Candidate, is_candidate_of_job())
            .join(Experiment, col(Experiment.id) == col(Job.experiment_id))
            .where(Job.id == job_id, Job.state == JobState.PENDING)
            .with_for_update(of=Job)
        )
        with self._database.write() as session:
            found = session.exec(query).one_or_none()
            if found is None:
                return None
            claim = Claim(*found)
            lease(claim.job, worker, self._deadline(session))
            return claim


@dataclass
class World:
    """One database with its stores and a clock that tests advance."""

    database: Database
    now: float = 1_000.0
    reuse: bool = False
    """Whether specs reuse evaluations; tests of other things evaluate each experiment anew."""
    experiments: ExperimentStore = field(init=False)
    jobs: SingleCalls = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = SingleCalls(self.database, lease_seconds=LEASE_SECONDS)
        self.experiments = ExperimentStore(self.database)

    def spec(self, **changes: object) -> ExperimentSpec:
        population = {"size": 4, "ensemble_sizes": [1, 3], **changes}
        method = population.pop("method", "randopt")
        sections = ("name", "failures", "engine", "reuse")
        given = {name: population.pop(name) for name in sections if name in population}
        return parse_spec(
            {
                "reuse": self.reuse,
                **given,
                "model": "tiny",
                "task": {"name": "gsm8k", "selection": "s.jsonl", "heldout": "h.jsonl"},
                "method": {"name": method, "radius": 0.1},
                "population": population,
            }
        )

    def admission(self, spec: ExperimentSpec) -> Admission:
        selection, heldout = rows_text(6), rows_text(9)
        inputs = {
            "spec_json": spec.model_dump_json(),
            "spec_digest": spec.digest,
            "model_digest": "m" * 64,
            "scorer": TASK.scorer,
            "max_tokens": 8,
            "selection_digest": selection.digest,
            "selection_rows": 6,
            "heldout_digest": heldout.digest,
            "heldout_rows": 9,
        }
        return Admission(inputs, [selection, heldout])

    def create(self, request_id: str = "request", **changes: object) -> str:
        """Store a pending experiment."""
        admission = self.admission(self.spec(**changes))
        return self.experiments.create(request_id, admission).experiment.id

    def select(self, request_id: str = "request", **changes: object) -> str:
        """Store an experiment whose selection jobs are pending."""
        experiment_id = self.create(request_id, **changes)
        experiments = self.experiments
        experiments.leave_pending(experiment_id, 4)
        size = experiments.get(experiment_id).experiment
        count = ExperimentSpec.model_validate_json(size.spec_json).population.size
        population = [
            Descriptor("portable-v1", seed, "randopt", 0.1, MAP.digest) for seed in range(count)
        ]
        base = Descriptor("portable-v1", 0, "base", 0.0, BASE_MAP.digest)
        assert experiments.sampled(experiment_id, (MAP, BASE_MAP), base, population)
        return experiment_id

    def claim(self, job_id: str, worker: str = "w") -> Claim:
        claim = self.jobs.claim_job(job_id, worker)
        assert claim is not None
        return claim

    def pending(self, experiment_id: str) -> list[str]:
        return self.jobs.pending(experiment_id)

    def beat(self, claim: Claim, answers_done: int = 3, *, waits: bool = False) -> LeaseState:
        """Send a heartbeat of a claimed job; return the state of its lease."""
        (state,) = self.jobs.heartbeat([self.progress(claim, answers_done, waits=waits)])
        return state

    @staticmethod
    def progress(claim: Claim, answers_done: int = 3, *, waits: bool = False) -> LeaseProgress:
        """Return what a worker sends to extend the lease of a claimed job."""
        lease = Lease(job_id=claim.job.id, token=claim.job.token)
        return LeaseProgress(lease=lease, answers_done=answers_done, waits=waits)

    def claim_next(self, experiment_id: str) -> Claim:
        return self.claim(self.pending(experiment_id)[0])

    def job_of(self, experiment_id: str, index: int) -> Job:
        """Return the selection job of a candidate."""
        found = self.experiments.candidates(experiment_id)
        return next(each.selection for each in found if each.candidate.index == index)

    def report_of(self, claim: Claim, answers: Sequence[Answer] | None = None) -> Report:
        """Return a worker's report of a claimed job."""
        candidate, experiment = claim.candidate, claim.experiment
        selecting = claim.job.split is Split.SELECTION
        rows = experiment.selection_rows if selecting else experiment.heldout_rows
        seed = -1 if candidate.index == BASE_INDEX else candidate.seed
        packed = candidate.coefficients
        resolved = () if candidate.index == BASE_INDEX else (0.5, float(candidate.index))
        return Report(
            job_id=claim.job.id,
            token=claim.job.token,
            descriptor=Descriptor(
                noise=candidate.noise,
                seed=candidate.seed,
                method=candidate.method,
                radius=candidate.radius,
                scale_map=candidate.scale_map_digest,
                coefficients=unpack_coefficients(packed) if packed is not None else resolved,
            ),
            answers=synthetic_answers(seed, rows) if answers is None else answers,
        )

    def report(self, claim: Claim) -> Change:
        return self.jobs.report(self.report_of(claim))

    def fail(self, claim: Claim, *failure: Any, **named: Any) -> Change:
        """End the attempt at a claimed job; without words on it the candidate cannot be scored."""
        failure = failure or (FailureKind.CANDIDATE, "nan")
        return self.jobs.fail(claim.job.id, claim.job.token, *failure, **named)

    def work(self, experiment_id: str) -> Change | None:
        """Claim, answer and report all pending jobs until none is left."""
        change = None
        while self.pending(experiment_id):
            change = self.report(self.claim_next(experiment_id))
        return change

    def state(self, experiment_id: str) -> str:
        with self.database.read() as session:
            return str(find_experiment(session, experiment_id).state)


@pytest.fixture
def world(database_url, monkeypatch) -> Iterator[World]:
    database = Database(database_url)
    database.migrate()
    world, aggregator = World(database), "modnorm.services.aggregator"
    clock = SimpleNamespace(time=lambda: world.now)
    monkeypatch.setattr(f"{aggregator}.storage.database.time", clock)
    monkeypatch.setattr(f"{aggregator}.jobs.job_store.database_time", lambda _session: world.now)
    yield world
    database.close()


@pytest.fixture
def finished(world: World) -> str:
    """The id of an experiment that succeeded."""
    experiment = world.select()
    world.work(experiment)
    assert world.state(experiment) == "SUCCEEDED"
    return experiment


@pytest.fixture
def directories(world: World, tmp_path: Path) -> RunDirectories:
    return RunDirectories(tmp_path / "runs", world.database)


@pytest.fixture
def catalog(world: World, directories: RunDirectories) -> LabCatalog:
    return LabCatalog(world.database, directories)
