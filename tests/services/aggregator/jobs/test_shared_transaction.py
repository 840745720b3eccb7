"""Calls in one transaction have the effects and answers of single calls."""

import dataclasses
import itertools
import math
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text
from sqlmodel import SQLModel

from modnorm.errors import InvalidInputError, ModnormError, StaleLeaseError, UnavailableError
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.jobs.reporting import Reporting
from modnorm.services.aggregator.jobs.shared_transaction import run_in_one_transaction
from modnorm.services.aggregator.jobs.worker_requests import Claim, ClaimRequest, Heartbeat
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.states import FailureKind

OWN = [("experiments", "id")] + [
    (name, "experiment_id") for name in ("candidates", "jobs", "events", "ensembles", "votes")
]
REQUESTS = itertools.count()
SIZE = 5

picks = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 5)), min_size=1, max_size=8)
rounds = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim", "report", "report", "report", "beat", "fail", "wait"]),
        picks,
    ),
    min_size=4,
    max_size=14,
)


@pytest.fixture
def plain(world, tmp_path):
    """Another world with single calls."""
    database = Database(f"sqlite:///{tmp_path}/plain.db")
    database.migrate()
    yield type(world)(database)
    database.close()


class Pair:
    """The same experiment in both worlds, with its claims."""

    def __init__(self, world, plain):
        self.worlds = (world, plain)
        request = f"together {next(REQUESTS)}"
        world.now = plain.now = 1_000.0
        failures = {"max_attempts": 2, "max_failed_candidates": 1}
        (self.id,) = {
            one.select(request, name=request, size=SIZE, ensemble_sizes=[1, 2], failures=failures)
            for one in self.worlds
        }
        self.claims = {}

    def jobs(self):
        with self.worlds[1].database.read() as session:
            query = text("SELECT id FROM jobs WHERE experiment_id = :id ORDER BY split, candidate")
            return [row[0] for row in session.execute(query, {"id": self.id})]

    def content(self, world):
        """Return every row that calls of workers change."""
        tables = SQLModel.metadata.tables
        jobs, sheets = tables["jobs"], tables["answers"]
        queries = {name: select(tables[name]).filter_by(**{key: self.id}) for name, key in OWN}
        of_jobs = select(jobs.c.id).where(jobs.c.experiment_id == self.id)
        queries["answers"] = select(sheets).where(sheets.c.job_id.in_(of_jobs))
        with world.database.read() as session:
            return {
                name: sorted(str(row) for row in session.execute(query))
                for name, query in queries.items()
            }

    def both(self, name, requests):
        """Make calls together in one world and singly in the other; compare the answers."""
        world, plain = (one.stores.jobs for one in self.worlds)
        at_once = [told(answer) for answer in getattr(world, f"{name}_all")(requests)]
        one_by_one = [getattr(plain, f"{name}_all")([request])[0] for request in requests]
        assert at_once == [told(answer) for answer in one_by_one]
        return one_by_one

    def play(self, kind, picked):
        ids = self.jobs()[-SIZE - 1 :]
        chosen = [(ids[index % len(ids)], odd) for index, odd in picked]
        if kind == "claim":
            requests = [ClaimRequest(job_id, f"w{odd}") for job_id, odd in chosen]
            for claim in self.both("claim", requests):
                if claim:
                    self.claims.setdefault(claim.job.id, []).append(claim)
        elif kind == "report":
            reports = [self.report(job_id, odd) for job_id, odd in chosen if job_id in self.claims]
            if reports:
                self.both("report", reports)
        elif kind == "beat":
            self.both("heartbeat", [Heartbeat(job_id, odd % 3, odd) for job_id, odd in chosen])
        else:
            for one in self.worlds:
                self.disturb(one, kind, chosen[0])

    def report(self, job_id, odd):
        claims = self.claims[job_id]
        report = self.worlds[1].report_of(claims[0] if odd == 1 else claims[-1])
        first = report.answers[0]
        return {
            2: dataclasses.replace(report, token=0),
            3: dataclasses.replace(
                report, answers=(dataclasses.replace(first, reward=math.nan), *report.answers[1:])
            ),
            4: dataclasses.replace(report, job_id="nobody's"),
        }.get(odd, report)

    def disturb(self, world, kind, pick):
        job_id, odd = pick
        if kind == "wait":
            world.now += 61
            for expired in world.stores.jobs.expired():
                world.stores.jobs.reap(expired)
        elif job_id in self.claims:
            token = self.claims[job_id][-1].job.token
            with suppress(StaleLeaseError):
                world.stores.jobs.fail(job_id, token, list(FailureKind)[odd % 2], "reason")


def told(answer):
    """Return the visible content of an answer."""
    if isinstance(answer, ModnormError):
        return type(answer), str(answer)
    assert not isinstance(answer, Exception), answer
    if isinstance(answer, Claim | Change):
        job = answer.job
        names = ("id", "state", "token", "attempts", "worker", "metric")
        told_job = job and tuple(getattr(job, name) for name in names)
        return type(answer), told_job, getattr(answer, "pending", None)
    return answer


def test_a_shared_transaction_gives_the_same_answers_as_single_ones(world, plain):
    @settings(
        max_examples=12,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(rounds)
    def check(played):
        pair = Pair(world, plain)
        pair.play("claim", [(index, 0) for index in range(SIZE + 1)])
        for kind, picked in played:
            pair.play(kind, picked)
        assert pair.content(world) == pair.content(plain)

    check()


def claimed(world, count):
    created = world.select(size=count, ensemble_sizes=[1])
    return created, [
        world.report_of(world.claim(one)) for one in world.stores.jobs.pending(created)
    ]


def test_a_report_that_the_database_refuses_fails_alone(world):
    created, reports = claimed(world, 5)
    answers = (dataclasses.replace(reports[2].answers[0], tokens=2**63), *reports[2].answers[1:])
    reports[2] = dataclasses.replace(reports[2], answers=answers)
    outcomes = world.stores.jobs.report_all(reports)
    assert [isinstance(one, Exception) for one in outcomes] == [index == 2 for index in range(6)]
    assert not isinstance(outcomes[2], ModnormError | None)
    assert world.stores.experiments.get(created).progress.jobs_done == 5


def test_a_defect_within_a_batch_stores_nothing_of_its_report(world, monkeypatch):
    created, reports = claimed(world, 5)
    keep = Reporting._keep

    def keep_most(self, held, packed, outcome):
        change = keep(self, held, packed, outcome)
        if packed.report is reports[3]:
            raise ArithmeticError
        return change

    monkeypatch.setattr(Reporting, "_keep", keep_most)
    outcomes = world.stores.jobs.report_all(reports)
    assert [isinstance(one, ArithmeticError) for one in outcomes] == [i == 3 for i in range(6)]
    assert world.stores.experiments.get(created).progress.jobs_done == 5
    assert world.stores.jobs.report(reports[0]).job is None


def test_a_job_that_was_never_leased_takes_no_report(world):
    _, (report, *_) = claimed(world, 3)
    other = world.select("other", size=3, ensemble_sizes=[1])
    job_id = world.stores.jobs.pending(other)[0]
    with pytest.raises(StaleLeaseError):
        world.stores.jobs.report(dataclasses.replace(report, job_id=job_id, token=0))
    assert world.stores.experiments.get(other).progress.jobs_done == 0


def test_an_outage_fails_a_whole_batch_without_separate_waits(world):
    tries = []

    def work(session, requests):
        tries.append(len(requests))
        raise UnavailableError("gone")

    answers = run_in_one_transaction(world.database, work, range(50))
    assert tries == [50, 1, 1]
    assert all(isinstance(answer, UnavailableError) for answer in answers)
    assert len({id(answer) for answer in answers}) == len(answers)


def test_two_experiments_in_one_batch(world):
    ids = [world.select(f"of {name}", size=2, ensemble_sizes=[1]) for name in "ab"]
    pending = [one for created in ids for one in world.stores.jobs.pending(created)]
    claims = world.stores.jobs.claim_all([ClaimRequest(one, "w") for one in pending])
    changes = world.stores.jobs.report_all([world.report_of(claim) for claim in claims])
    assert [world.state(created) for created in ids] == ["VOTING", "VOTING"]
    assert [bool(change.pending) for change in changes] == [False, False, True] * 2
    for created in ids:
        events, _ = world.stores.events.after(created, 0, 100)
        assert [event.cursor for event in events] == list(range(1, len(events) + 1))


def test_only_the_last_report_of_a_batch_ends_its_experiment(world):
    created = world.select(size=3, ensemble_sizes=[2])
    batches = []
    while pending := world.stores.jobs.pending(created):
        claims = world.stores.jobs.claim_all([ClaimRequest(one, "w") for one in pending])
        batches.append(world.stores.jobs.report_all([world.report_of(one) for one in claims]))
    assert world.state(created) == "SUCCEEDED"
    ended = [[change.ended for change in changes] for changes in batches]
    assert len(ended) == 2
    assert len(ended[1]) > 1
    assert [any(each) for each in ended] == [False, True]
    assert sum(ended[1]) == ended[1][-1] == 1


def test_the_end_of_a_phase_does_not_affect_other_experiments(world, plain):
    def reported(one, batches):
        sizes = {"ends": 2, "goes on": 4}
        ids = [
            one.select(name, size=size, ensemble_sizes=[1], name=name)
            for name, size in sizes.items()
        ]
        ends, goes_on = (one.stores.jobs.pending(created) for created in ids)
        order = [goes_on[0], ends[0], goes_on[1], ends[1], ends[2], goes_on[2]]
        claims = one.stores.jobs.claim_all([ClaimRequest(job_id, "w") for job_id in order])
        reports = [one.report_of(claim) for claim in claims]
        for batch in batches(reports):
            one.stores.jobs.report_all(batch)
        assert [one.state(created) for created in ids] == ["VOTING", "SELECTING"]
        progress = [one.stores.experiments.get(created).progress for created in ids]
        events = [one.stores.events.after(created, 0, 100)[0] for created in ids]
        told = [[(event.cursor, event.message) for event in each] for each in events]
        return [str(each) for each in progress], told

    world.now = plain.now = 1_000.0
    at_once = reported(world, lambda reports: [reports])
    assert at_once == reported(plain, lambda reports: [[one] for one in reports])


def test_the_same_job_twice_in_a_batch(world):
    created = world.select(size=3, ensemble_sizes=[1])
    job_id = world.stores.jobs.pending(created)[0]
    first, second = world.stores.jobs.claim_all(
        [ClaimRequest(job_id, "a"), ClaimRequest(job_id, "b")]
    )
    assert (first.job.worker, second) == ("a", None)
    report = world.report_of(first)
    bad = dataclasses.replace(report, answers=report.answers[1:])
    outcomes = world.stores.jobs.report_all([bad, report, report])
    assert isinstance(outcomes[0], InvalidInputError)
    assert outcomes[1].job is not None
    assert outcomes[2].job is None
    assert world.stores.experiments.get(created).progress.jobs_done == 1
