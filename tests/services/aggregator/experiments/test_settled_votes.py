"""Stored settled votes, compared with complete experiments."""

from dataclasses import replace
from random import Random

import pytest

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.experiments.run_writing import ensemble_votes
from modnorm.services.aggregator.jobs.leases import Claim
from modnorm.services.aggregator.storage.tables import FailureKind, JobState, Split
from tests.services.aggregator.world import Report

SIZES = {"size": 12, "prefixes": [6, 12], "ensemble_sizes": [1, 3, 5]}


def short_report(world, claim):
    """Return the report of a worker that skips what it may skip."""
    whole = world.report_of(claim)
    left = [answer for answer in whole.answers if answer.row not in claim.skipped]
    return replace(whole, answers=left)


def restarted(world):
    """Return the job store of a new aggregator."""
    return type(world)(world.database, world.now).jobs


class Crew:
    """Workers of an experiment with lost attempts and restarts of the aggregator."""

    def __init__(self, world, experiment_id, random, failing):
        self.world, self.id, self.random, self.failing = world, experiment_id, random, failing
        self.jobs = world.jobs
        self.busy: list[tuple[Claim, Report]] = []

    def run(self) -> None:
        while True:
            pending = self.jobs.pending(self.id) if len(self.busy) < 2 else ()
            if pending:
                self.take(self.random.choice(pending))
            elif self.busy:
                self.go_on(self.random.choice(self.busy))
            else:
                return
            self.restart_perhaps()

    def restart_perhaps(self) -> None:
        if self.random.random() < 0.02:
            self.jobs = restarted(self.world)

    def take(self, job_id: str) -> None:
        claim = self.jobs.claim_job(job_id)
        assert claim is not None
        if claim.job.split is Split.SELECTION and claim.candidate.index in self.failing:
            self.jobs.fail(claim.job.id, claim.job.token, FailureKind.CANDIDATE, "not finite")
            return
        self.busy.append((claim, short_report(self.world, claim)))

    def go_on(self, one: tuple[Claim, Report]) -> None:
        claim, report = one
        if self.random.random() < 0.1:
            self.jobs.fail(claim.job.id, claim.job.token, FailureKind.RELEASED, "drained")
        else:
            for _ in range(self.random.choice([1, 2])):
                self.jobs.report(report)
        self.busy.remove(one)


def outcomes(world, experiment_id):
    return [
        (one.population, one.ensemble_size, one.experts, one.metric, one.correct)
        for one in world.experiments.get(experiment_id).ensembles
    ]


def votes(world, experiment_id):
    return ensemble_votes(world.database, world.experiments.get(experiment_id))


def counts(vote):
    return vote.valid, vote.support, vote.correct_support


@pytest.mark.parametrize("seed", [1, 3])
def test_any_interleaving_gives_the_result_of_all_answers(world, seed):
    random = Random(seed)
    failing = set(random.sample(range(12), 1))
    failures = {"max_failed_candidates": 1}
    full = world.select("full", **SIZES, statistics="full", failures=failures)
    Crew(world, full, random, failing).run()
    short = world.select("short", **SIZES, failures=failures)
    Crew(world, short, random, failing).run()
    assert outcomes(world, short) == outcomes(world, full) != []
    left_out = 0
    found, others = votes(world, short), votes(world, full)
    for size in found:
        for vote, other in zip(found[size], others[size], strict=True):
            assert (vote.answer, vote.correct) == (other.answer, other.correct)
            assert vote.skipped or counts(vote) == counts(other)
            assert other.skipped == 0
            left_out += vote.skipped
    records = world.experiments.candidates(short)
    whole = {each.candidate.index: each for each in world.experiments.candidates(full)}
    assert left_out > 0
    assert [one.selection.metric for one in records] == [
        one.selection.metric for one in whole.values()
    ]
    firsts = {-1, *(one.experts[0] for one in world.experiments.get(short).ensembles)}
    for each in records:
        if each.candidate.index in firsts:
            expected = whole[each.candidate.index].heldout.metric
            assert each.heldout.metric == expected is not None


def test_open_rows_are_required_and_settled_rows_are_optional(world):
    created = world.select(size=4, ensemble_sizes=[1, 3])
    while world.state(created) == "SELECTING":
        world.jobs.report(world.report_of(world.claim_next(created)))
    last, told = None, []
    while pending := world.pending(created):
        last = world.claim(pending[0])
        told.append(last.skipped)
        report = world.report_of(last)
        opened = [answer for answer in report.answers if answer.row not in last.skipped]
        with pytest.raises(InvalidInputError, match="must cover the rows"):
            world.jobs.report(replace(report, answers=opened[1:]))
        world.jobs.report(report)
    assert any(told)
    assert all(vote.skipped == 0 for vote in votes(world, created)[4, 3])


def test_partial_ballots_are_reused_where_their_rows_are_settled(world):
    narrow, wide = ({"size": 12, "ensemble_sizes": sizes} for sizes in ([1, 3], [1, 3, 5]))
    first = world.select("first", **narrow)
    while pending := world.pending(first):
        world.jobs.report(short_report(world, world.claim(pending[0])))
    heldout = {each.candidate.index: each.heldout for each in world.experiments.candidates(first)}
    partial = {index for index, job in heldout.items() if job and job.metric is None}
    assert partial
    same = world.select("same", **narrow, reuse=True)
    assert world.state(same) == "SUCCEEDED"
    assert outcomes(world, same) == outcomes(world, first)
    other = world.select("other", **wide, reuse=True)
    again = world.experiments.candidates(other)
    assert partial <= {
        each.candidate.index
        for each in again
        if each.heldout and each.heldout.state is JobState.PENDING
    }
    full = world.select("full", **wide, statistics="full")
    for one in (other, full):
        Crew(world, one, Random(0), set()).run()
    assert outcomes(world, other) == outcomes(world, full)


def test_skipped_rows_are_answered_if_the_experts_differ(world):
    """The best candidate failed before, so that ballots lack rows for other ensembles."""
    full = world.select("full", **SIZES, statistics="full")
    Crew(world, full, Random(0), set()).run()
    best = outcomes(world, full)[-1][2]
    failures = {"max_failed_candidates": 1}
    first = world.select("first", **SIZES, failures=failures)
    crew = Crew(world, first, Random(2), {best[0]})
    while world.state(first) == "SELECTING" or len(crew.jobs.pending(first)) > 1:
        crew.take(crew.jobs.pending(first)[-1])  # the base comes last
        while crew.busy:
            crew.go_on(crew.busy[0])
    short = [one for one in world.experiments.candidates(first) if one.heldout]
    assert any(one.heldout.state == "done" and one.heldout.metric is None for one in short)
    world.experiments.fail(first, "the disk is full")
    again = world.select("again", **SIZES, failures=failures, reuse=True)
    Crew(world, again, Random(0), set()).run()
    assert outcomes(world, again) == outcomes(world, full)
