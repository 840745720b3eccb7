"""Stored early stops and settled votes, compared with complete experiments."""

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from modnorm.errors import InvalidInputError
from modnorm.search.answers import Answer
from modnorm.search.stopping import EarlyStop, Threshold
from modnorm.services.aggregator.experiments.run_writing import ensemble_votes
from modnorm.services.aggregator.jobs.leases import Claim
from modnorm.services.aggregator.storage.tables import FailureKind, Split
from modnorm.tasks import RewardBounds
from tests.faults import error_at
from tests.services.aggregator.world import Report

SIZES = {"size": 12, "prefixes": [6, 12], "ensemble_sizes": [1, 3, 5]}
BOUNDS = RewardBounds(0.0, 1.0)


def stopped(report: Report, *rows: int) -> Report:
    """Return the report of a stopped candidate with some answers."""
    return replace(report, answers=[report.answers[row] for row in rows], stopped=True)


@dataclass
class Worker:
    """Answers a claimed job row by row in a random order."""

    claim: Claim
    whole: Report
    left: list[int]
    bar: Threshold | None
    known: list[Answer] = field(default_factory=list)

    def step(self) -> Report | None:
        """Answer a row, or return the report."""
        if self.claim.job.split is Split.SELECTION:
            stop = EarlyStop(self.claim.candidate.index, BOUNDS, lambda: self.bar)
            rewards = [answer.reward for answer in self.known]
            if self.left and stop.decide(rewards, len(self.whole.answers)):
                return self.report(stopped=True)
        if not self.left:
            return self.report(stopped=False)
        self.known.append(self.whole.answers[self.left.pop()])
        return None

    def report(self, *, stopped: bool) -> Report:
        answers = sorted(self.known, key=lambda answer: answer.row)
        return replace(self.whole, answers=answers, stopped=stopped)


def restarted(world):
    """Return the job store of a new aggregator."""
    return type(world)(world.database, world.now).jobs


class Crew:
    """Workers of an experiment with lost attempts and restarts of the aggregator."""

    def __init__(self, world, experiment_id, random, failing):
        self.world, self.id, self.random, self.failing = world, experiment_id, random, failing
        self.jobs = world.jobs
        self.busy: list[Worker] = []

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
            self.jobs = restarted(self.world)

    def take(self, job_id: str) -> None:
        claim = self.jobs.claim_job(job_id)
        assert claim is not None
        if claim.job.split is Split.SELECTION and claim.candidate.index in self.failing:
            self.jobs.fail(claim.job.id, claim.job.token, FailureKind.CANDIDATE, "not finite")
            return
        whole = self.world.report_of(claim)
        left = [row for row in range(len(whole.answers)) if row not in claim.skipped]
        self.random.shuffle(left)
        self.busy.append(Worker(claim, whole, left, claim.threshold))

    def go_on(self, worker: Worker) -> None:
        event, job = self.random.random(), worker.claim.job
        if event < 0.03:
            self.jobs.fail(job.id, job.token, FailureKind.RELEASED, "drained")
            self.busy.remove(worker)
        elif event < 0.2:
            worker.bar = (
                self.jobs._early_stop.cached_threshold(self.id, worker.claim.candidate.index)
                or worker.bar
            )
        elif (report := worker.step()) is not None:
            for _ in range(self.random.choice([1, 2])):
                self.jobs.report(report)
            self.busy.remove(worker)


def outcomes(world, experiment_id):
    return [
        (one.population, one.ensemble_size, one.experts, one.metric, one.correct)
        for one in world.experiments.get(experiment_id).ensembles
    ]


def votes(world, experiment_id):
    return ensemble_votes(world.database, world.experiments.get(experiment_id))


def counts(vote):
    return vote.valid, vote.support, vote.correct_support


@pytest.mark.parametrize("seed", [1, 2])
def test_any_interleaving_gives_the_result_without_early_stop(world, seed):
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
    few = [each for each in records if each.selection.reward_upper is not None]
    assert world.experiments.get(short).experiment.candidates_stopped == len(few) > 0
    assert left_out > 0
    for each in few:
        plain = whole[each.candidate.index].selection.metric
        assert each.selection.metric is None
        if plain is not None:
            assert each.selection.reward_lower <= plain <= each.selection.reward_upper
    firsts = {-1, *(one.experts[0] for one in world.experiments.get(short).ensembles)}
    for each in records:
        if each.candidate.index in firsts:
            expected = whole[each.candidate.index].heldout.metric
            assert each.heldout.metric == expected is not None


def scored_to_the_bar(world, **changes):
    """Store an experiment whose first candidates set a threshold; return it and the next claim."""
    created = world.select(size=8, ensemble_sizes=[1, 2], **changes)
    pending = world.pending(created)
    for job_id in pending[:4]:  # the base and three candidates
        report = world.report_of(world.claim(job_id))
        right = [replace(answer, reward=1.0) for answer in report.answers]
        world.jobs.report(replace(report, answers=right))
    return created, world.claim(pending[4])


def test_a_candidate_that_can_still_be_an_expert_is_not_stopped(world):
    created = world.select(size=8, ensemble_sizes=[1, 2])
    claims = [world.claim(job_id) for job_id in world.pending(created)[:3]]
    assert [claim.threshold for claim in claims] == [None] * 3
    for claim in claims:
        with error_at("stopped", "and be an expert"):
            world.jobs.report(stopped(world.report_of(claim), 0))
    assert world.experiments.get(created).experiment.candidates_stopped == 0


@pytest.mark.parametrize("rows", [(0, 0), (1, 0), (0, 6)])
def test_the_rows_of_a_stopped_candidate_are_some_of_all_in_order(world, rows):
    _, claim = scored_to_the_bar(world)
    report = world.report_of(claim)
    answers = [replace(report.answers[0], row=row) for row in rows]
    with error_at("answers.row"):
        world.jobs.report(replace(report, answers=answers, stopped=True))


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


def test_equal_scores_are_read_in_candidate_order(world):
    """A new aggregator computes the same threshold."""
    created, claim = scored_to_the_bar(world, prefixes=[4, 8])
    pending = world.pending(created)
    again = restarted(world).claim_job(pending[0])
    assert again is not None
    assert (claim.threshold, again.threshold) == (Threshold(1.0, 1), Threshold(1.0, 1))


def test_stopped_candidates_are_reused_with_the_scores_that_exclude_them(world):
    random = Random(11)
    again = world.select("again", **SIZES)
    jobs = world.jobs
    crew = Crew(world, again, random, set())
    while world.state(again) == "SELECTING" or len(jobs.pending(again)) > 3:
        pending = jobs.pending(again)
        crew.take(pending[0])
        while crew.busy:
            crew.go_on(crew.busy[0])
    world.experiments.fail(again, "the disk is full")
    ended = world.experiments.get(again).experiment
    third = world.select("third", **SIZES, reuse=True)
    taken = world.experiments.get(third).experiment
    assert taken.state == "VOTING"
    assert taken.candidates_stopped == ended.candidates_stopped > 0
    old = {one.candidate.index: one for one in world.experiments.candidates(again)}
    for one in world.experiments.candidates(third):
        before = old[one.candidate.index].selection
        assert one.selection.reward_upper == before.reward_upper
        assert one.selection.metric == before.metric
    alone = world.select("alone", **SIZES)
    for one in (third, alone):
        Crew(world, one, random, set()).run()
    assert outcomes(world, third) == outcomes(world, alone)


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
