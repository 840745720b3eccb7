"""A world with a trainer, for tests of distillations."""

import hashlib
import logging
from dataclasses import dataclass, replace

import pytest
from sqlmodel import select

from modnorm.perturbation.descriptor import Descriptor
from modnorm.services.aggregator.jobs.trainings import TrainingStore
from modnorm.services.aggregator.jobs.worker_requests import ClaimRequest
from modnorm.services.aggregator.storage.states import ExperimentState, Purpose
from modnorm.services.aggregator.storage.tables import Experiment
from modnorm.spec import parse_spec
from modnorm.v1 import evaluation_pb2
from tests.services.aggregator.world import (
    BASE_MAP,
    MAP,
    World,
    only,
    rows_text,
    synthetic_answers,
)

TRAINING_ROWS, DEVELOPMENT_ROWS = 12, 5
TERMINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}


@pytest.fixture
def own_logging():
    """Undo what a program configures: its handler writes to a stream that ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@dataclass
class Lab:
    """A world with a trainer that makes a student of each job's inputs."""

    world: World
    trainings: TrainingStore

    def create(self, request_id="request", failures=None, admitted=None, **distillation):
        settings = {
            "rounds": 2,
            "rows": "t.jsonl",
            "development": "d.jsonl",
            "harvest": {"samples": 2, "keep": 3},
            **distillation,
        }
        made = self.world.spec(size=4, ensemble_sizes=[1, 3], failures=failures or {})
        plain = made.model_dump(mode="json")
        spec = parse_spec({**plain, "distillation": settings})
        rows = {
            "training": rows_text(TRAINING_ROWS),
            "training_rows": TRAINING_ROWS,
            "development": rows_text(DEVELOPMENT_ROWS),
            "development_rows": DEVELOPMENT_ROWS,
        }
        admission = replace(self.world.admission(spec), **{**rows, **(admitted or {})})
        return self.world.stores.experiments.create(request_id, admission).experiment.id

    def get(self, experiment_id):
        return self.world.stores.experiments.get(experiment_id)

    def children(self, parent, purpose=None):
        with self.world.database.read() as session:
            every = session.exec(select(Experiment).where(Experiment.parent_id == parent)).all()
        return [child for child in every if purpose in {None, child.purpose}]

    def step(self, parent):
        """Do the next piece of work, whatever it is."""
        if self.world.state(parent) == "PENDING":
            self.world.stores.distillations.begin(parent)
        elif self.world.stores.distillations.advance(parent) is None:
            jobs = self.world.stores.jobs.pending(parent, trains=True)
            if jobs:
                self.train(jobs[0])
                return
            (child,) = [one for one in self.children(parent) if one.state not in TERMINAL]
            self.answer(child)

    def run(self, parent, until=lambda: False):
        while self.world.state(parent) not in TERMINAL and not until():
            self.step(parent)

    def is_trained(self, parent):
        """Return whether the first round has a student."""
        return any(each.part.student_digest for each in self.get(parent).rounds)

    def answer(self, child):
        self.world.stores.experiments.leave_pending(child.id, 4)
        self.sample(child)
        while pending := self.world.stores.jobs.pending(child.id):
            self.report(pending[0])

    def sample(self, child):
        """Give a child that waits for a population its candidates."""
        experiments = self.world.stores.experiments
        if experiments.get(child.id).experiment.state is ExperimentState.SAMPLING:
            evaluates = child.purpose is Purpose.EVALUATION
            seed = child.spec.population.seed
            population = [
                Descriptor("portable-v1", seed + each, "randopt", 0.1, MAP.digest)
                for each in range(0 if evaluates else 4)
            ]
            base = Descriptor("portable-v1", 0, "base", 0.0, BASE_MAP.digest)
            experiments.sampled(child.id, (MAP, BASE_MAP), base, population)

    def report(self, job_id):
        claim = self.world.claim(job_id)
        _, rows = claim.experiment.rows_of(claim.job.split)
        seed = -1 if claim.candidate.is_base else claim.candidate.seed + 7 * claim.job.candidate
        report = self.world.report_of(claim, synthetic_answers(seed, rows))
        return self.world.jobs.report(report)

    def claim_training(self, job_id, worker="t"):
        return only(self.world.jobs.claim_all([ClaimRequest(job_id, worker, trains=True)]))

    def student_of(self, claim):
        text = f"{claim.round.start_digest}/{claim.round.dataset_digest}/{claim.candidate.seed}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        (self.world.students.root / digest).mkdir(parents=True, exist_ok=True)
        return digest

    def report_of(self, claim):
        return evaluation_pb2.TrainReport(
            lease=evaluation_pb2.Lease(job_id=claim.job.id, token=claim.job.token),
            worker="t",
            student_digest=self.student_of(claim),
            steps=3,
            tokens=100,
            flops=1e6,
            seconds=2.0,
        )

    def train(self, job_id):
        claim = self.claim_training(job_id)
        assert claim is not None
        return self.trainings.report(self.report_of(claim))


@pytest.fixture
def lab(world):
    def clock():
        return world.now

    world.reuse = True
    return Lab(world, TrainingStore(world.database, world.students, clock=clock))
