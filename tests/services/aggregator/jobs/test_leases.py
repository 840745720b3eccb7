"""Claims, heartbeats, expiry, stale reports, failures, restarts and cancels, in any order."""

import itertools
from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlmodel import select

from modnorm.errors import StaleLeaseError
from modnorm.services.aggregator.storage.tables import (
    TERMINAL,
    AnswerSheet,
    FailureKind,
    Job,
    JobState,
    Split,
)
from tests.services.aggregator.world import on_both_databases

ATTEMPTS = 3
LARGEST = 2
OPEN_JOBS = {JobState.PENDING, JobState.LEASED}
REQUESTS = itertools.count()

pytestmark = on_both_databases


class Leases(RuleBasedStateMachine):
    """One experiment against a model of what its jobs may do."""

    def __init__(self, world):
        super().__init__()
        self.world = world
        request = f"request {next(REQUESTS)}"
        self.id = world.select(
            request,
            name=request,  # another name: no result of the run before is reused
            failures={"max_attempts": ATTEMPTS, "max_failed_candidates": 2},
            size=4,
            ensemble_sizes=[1, LARGEST],
        )
        self.claims = []
        self.done = {}
        self.counted = {}
        self.end = None

    def jobs(self):
        with self.world.database.read() as session:
            rows = session.exec(select(Job).where(Job.experiment_id == self.id)).all()
        return {job.id: job for job in rows}

    def sheets(self):
        with self.world.database.read() as session:
            query = select(AnswerSheet).join(Job).where(Job.experiment_id == self.id)
            return {sheet.job_id: sheet.content for sheet in session.exec(query)}

    def is_current(self, claim):
        return self.jobs()[claim.job.id].token == claim.job.token

    @rule(pick=st.integers(0, 100))
    def claim(self, pick):
        jobs = list(self.jobs().values())
        job = jobs[pick % len(jobs)]
        claim = self.world.jobs.claim_job(job.id)
        assert (claim is not None) == (job.state is JobState.PENDING)
        if claim:
            assert claim.job.token == job.token + 1
            self.claims.append(claim)

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 100))
    def heartbeat(self, pick):
        claim = self.claims[-1 - pick % len(self.claims)]
        job = self.jobs()[claim.job.id]
        alive = self.is_current(claim) and job.state in {JobState.LEASED, JobState.CANCELLED}
        state = self.world.beat(claim, 1)
        assert bool(state.lost) != alive
        assert state.cancel == (alive and job.state is JobState.CANCELLED)

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 100))
    def report(self, pick):
        claim = self.claims[-1 - pick % len(self.claims)]
        job = self.jobs()[claim.job.id]
        taken = self.is_current(claim) and job.state in {*OPEN_JOBS, JobState.DONE}
        try:
            self.world.jobs.report(self.world.report_of(claim))
        except StaleLeaseError:
            assert not taken
        else:
            assert taken

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 100), kind=st.sampled_from([*FailureKind]))
    def fail(self, pick, kind):
        if kind is FailureKind.FATAL and pick % 4:
            return
        claim = self.claims[-1 - pick % len(self.claims)]
        current = self.is_current(claim)
        try:
            self.world.fail(claim, kind, "reason")
        except StaleLeaseError:
            assert not current
        else:
            assert current

    @rule(seconds=st.sampled_from([1, 30, 61]))
    def wait(self, seconds):
        self.world.now += seconds
        for job_id in self.world.jobs.expired():
            self.world.jobs.reap(job_id)

    @rule(chance=st.integers(0, 4))
    def restart(self, chance):
        if chance == 0:
            self.world.jobs.release_all()

    @rule(chance=st.integers(0, 9))
    def cancel(self, chance):
        if chance == 0:
            self.world.experiments.cancel(self.id)
            assert self.world.state(self.id) in TERMINAL

    @invariant()
    def the_stored_state_is_sound(self):
        """Read each table once: the reads take most of the time."""
        jobs, sheets = self.jobs(), self.sheets()
        record = self.world.experiments.get(self.id)
        self.check_that_what_is_done_stays_as_it_was(jobs, sheets)
        self.check_that_attempts_are_counted_and_bounded(jobs)
        self.check_that_the_end_absorbs(jobs, record)
        self.check_that_every_result_is_counted_once(sheets)
        self.check_that_progress_is_what_a_recount_says([*jobs.values()], record.progress)

    def check_that_what_is_done_stays_as_it_was(self, jobs, sheets):
        done = {job.id: job for job in jobs.values() if job.state is JobState.DONE}
        assert sheets.keys() == done.keys()
        for job_id, before in self.done.items():
            assert (done[job_id], sheets[job_id]) == before
        self.done = {job_id: (job, sheets[job_id]) for job_id, job in done.items()}

    def check_that_attempts_are_counted_and_bounded(self, jobs):
        for job in jobs.values():
            assert 0 <= self.counted.get(job.id, 0) <= job.attempts <= min(job.token, ATTEMPTS)
            self.counted[job.id] = job.attempts

    def check_that_the_end_absorbs(self, jobs, record):
        if self.end is not None:
            assert record == self.end
        elif record.experiment.state in TERMINAL:
            self.end = record
        states = {job.state for job in jobs.values()}
        assert (record.experiment.state in TERMINAL) == (not states & OPEN_JOBS)

    def check_that_every_result_is_counted_once(self, sheets):
        events, _ = self.world.experiments.events(self.id, 0, 1000)
        assert [event.cursor for event in events] == list(range(1, len(events) + 1))
        scored = [event for event in events if event.message.split(": ")[-1][:2] in {"0.", "1."}]
        assert len(scored) == len(sheets)

    def check_that_progress_is_what_a_recount_says(self, jobs, progress):
        selection = [job for job in jobs if job.split is Split.SELECTION]
        phase = [job for job in jobs if job.split is Split.HELDOUT] or selection
        states = Counter(job.state for job in phase)
        assert progress.jobs_total == len(phase)
        assert progress.jobs_done == states[JobState.DONE]
        assert progress.jobs_failed == states[JobState.FAILED]
        assert progress.jobs_running == states[JobState.LEASED]
        rewards = [
            job.metric for job in selection if job.state is JobState.DONE and job.candidate >= 0
        ]
        ranked = sorted(rewards, reverse=True)[:LARGEST]
        assert progress.HasField("best_reward") == bool(ranked)
        assert progress.HasField("threshold_reward") == (len(ranked) == LARGEST)
        if ranked:
            assert progress.best_reward == ranked[0]
        if len(ranked) == LARGEST:
            assert progress.threshold_reward == ranked[-1]

    def teardown(self):
        """Working workers finish any experiment."""
        self.world.now += 61
        for job_id in self.world.jobs.expired():
            self.world.jobs.reap(job_id)
        self.world.work(self.id)
        assert self.world.state(self.id) in TERMINAL


def test_leases_in_any_order(world):
    class LeasesOfWorld(Leases):
        def __init__(self):
            super().__init__(world)

    run_state_machine_as_test(
        LeasesOfWorld,
        settings=settings(
            max_examples=10,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
