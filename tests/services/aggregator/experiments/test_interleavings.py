"""Equal experiments end in equal files, however their workers interleave."""

from random import Random

import pytest

from modnorm.analysis.run_files import TIMINGS
from modnorm.services.aggregator.jobs.leases import Claim
from modnorm.services.aggregator.storage.tables import FailureKind, Split
from tests.services.aggregator.world import Report

SIZES = {"size": 12, "prefixes": [6, 12], "ensemble_sizes": [1, 3, 5]}


class Crew:
    """Workers of an experiment with lost attempts and restarts of the aggregator."""

    def __init__(self, world, experiment_id, random, failing):
        self.world, self.id, self.random, self.failing = world, experiment_id, random, failing
        self.jobs = world.jobs
        self.busy: list[tuple[Claim, Report]] = []

    def run(self) -> None:
        while True:
            pending = self.jobs.pending(self.id) if len(self.busy) < 3 else ()
            if pending:
                self.take(self.random.choice(pending))
            elif self.busy:
                self.go_on(self.random.choice(self.busy))
            else:
                return
            self.restart_perhaps()

    def restart_perhaps(self) -> None:
        if self.random.random() < 0.02:
            self.jobs = type(self.world)(self.world.database, self.world.now).jobs

    def take(self, job_id: str) -> None:
        claim = self.jobs.claim_job(job_id)
        assert claim is not None
        if claim.job.split is Split.SELECTION and claim.candidate.index in self.failing:
            self.jobs.fail(claim.job.id, claim.job.token, FailureKind.CANDIDATE, "not finite")
            return
        self.busy.append((claim, self.world.report_of(claim)))

    def go_on(self, one: tuple[Claim, Report]) -> None:
        claim, report = one
        if self.random.random() < 0.1:
            self.jobs.fail(claim.job.id, claim.job.token, FailureKind.RELEASED, "drained")
        else:
            for _ in range(self.random.choice([1, 2])):
                self.jobs.report(report)
        self.busy.remove(one)


def files(directory):
    """Return the content of the files of a run but for its times."""
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name != TIMINGS]
    return {path.relative_to(directory): path.read_bytes() for path in paths}


@pytest.mark.parametrize("seed", [1, 3])
def test_any_interleaving_gives_the_same_files(world, directories, seed):
    failing = set(Random(seed).sample(range(12), 1))
    runs = []
    for name in ("one", "other"):
        created = world.select(name, **SIZES, failures={"max_failed_candidates": 1})
        Crew(world, created, Random(f"{name} {seed}"), failing).run()
        assert world.state(created) == "SUCCEEDED"
        runs.append(files(directories.of(created)))
    assert runs[0] == runs[1]
    assert {"results.json", "answers.parquet", "votes.parquet"} <= {path.name for path in runs[0]}
