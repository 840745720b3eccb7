"""Claims and reports in one transaction have the effects and answers of single ones."""

import asyncio
import dataclasses
import logging

import pytest
from prometheus_client import CollectorRegistry

from modnorm.errors import InvalidInputError, ModnormError, UnavailableError
from modnorm.services.aggregator.api.job_servicer import CallBatcher, JobServicer
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.jobs import job_store
from modnorm.services.aggregator.jobs.leases import lease_jobs
from modnorm.services.aggregator.jobs.reporting import Reporting
from modnorm.services.aggregator.lab_status import Workers
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.lookups import lock_experiment
from modnorm.services.common.background import ShieldedTasks
from modnorm.v1.evaluation_pb2 import ClaimJobRequest
from tests.services.aggregator.world import on_both_databases

pytestmark = on_both_databases


@pytest.fixture
def plain(world, tmp_path):
    """Another world for single reports."""
    database = Database(f"sqlite:///{tmp_path}/plain.db")
    database.migrate()
    yield type(world)(database)
    database.close()


def claimed(world, count):
    created = world.select(size=count, ensemble_sizes=[1])
    return created, [world.report_of(world.claim(one)) for one in world.pending(created)]


def test_a_report_that_the_database_refuses_fails_alone(world, monkeypatch):
    created, reports = claimed(world, 5)
    answer = Reporting._answer

    def keep_no_sheet_of_one(self, held, report, sheet):
        change = answer(self, held, report, sheet)
        if report.lease.job_id == reports[2].job_id:
            self._answer_sheets[-1] |= {"content": None}
        return change

    monkeypatch.setattr(Reporting, "_answer", keep_no_sheet_of_one)
    outcomes = world.jobs.report_all(reports)
    assert [isinstance(one, Exception) for one in outcomes] == [index == 2 for index in range(6)]
    assert not isinstance(outcomes[2], ModnormError | None)
    assert world.experiments.get(created).progress.jobs_done == 5


def test_a_defect_within_a_batch_stores_nothing_of_its_report(world, monkeypatch):
    created, reports = claimed(world, 5)
    answer = Reporting._answer

    def keep_most(self, held, report, sheet):
        change = answer(self, held, report, sheet)
        if report.lease.job_id == reports[3].job_id:
            raise ArithmeticError
        return change

    monkeypatch.setattr(Reporting, "_answer", keep_most)
    outcomes = world.jobs.report_all(reports)
    assert [isinstance(one, ArithmeticError) for one in outcomes] == [i == 3 for i in range(6)]
    assert world.experiments.get(created).progress.jobs_done == 5
    assert world.jobs.report(reports[0]).job is None


def test_only_the_last_report_of_a_batch_ends_its_experiment(world):
    created = world.select(size=3, ensemble_sizes=[2])
    batches = []
    while pending := world.pending(created):
        claims = [world.claim(one) for one in pending]
        batches.append(world.jobs.report_all([world.report_of(one) for one in claims]))
    assert world.state(created) == "SUCCEEDED"
    ended = [[change.ended for change in changes] for changes in batches]
    assert len(ended) == 2
    assert len(ended[1]) > 1
    assert [any(each) for each in ended] == [False, True]
    assert sum(ended[1]) == ended[1][-1] == 1


async def test_the_end_of_an_experiment_is_logged_once(world, caplog):
    metrics = AggregatorMetrics(CollectorRegistry())
    servicer = JobServicer(
        world.jobs, world.experiments, lambda _: None, metrics, Workers(), ShieldedTasks()
    )
    created = world.select(size=3, ensemble_sizes=[2])
    with caplog.at_level(logging.INFO):
        while pending := world.pending(created):
            reports = [world.report_of(world.claim(one)).message for one in pending]
            await asyncio.gather(*(servicer.ReportJob(report, None) for report in reports))
    assert [text for text in caplog.messages if text.startswith("experiment is")] == [
        "experiment is VOTING",
        "experiment is SUCCEEDED",
    ]


def test_the_end_of_a_phase_does_not_affect_other_experiments(world, plain):
    def reported(one, batches):
        sizes = {"ends": 2, "goes on": 4}
        ids = [
            one.select(name, size=size, ensemble_sizes=[1], name=name)
            for name, size in sizes.items()
        ]
        ends, goes_on = (one.pending(created) for created in ids)
        order = [goes_on[0], ends[0], goes_on[1], ends[1], ends[2], goes_on[2]]
        claims = [one.claim(job_id) for job_id in order]
        reports = [one.report_of(claim) for claim in claims]
        for batch in batches(reports):
            one.jobs.report_all(batch)
        assert [one.state(created) for created in ids] == ["VOTING", "SELECTING"]
        progress = [one.experiments.get(created).progress for created in ids]
        events = [one.experiments.events(created, 0, 100)[0] for created in ids]
        told = [[(event.cursor, event.message) for event in each] for each in events]
        return [str(each) for each in progress], told

    world.now = plain.now = 1_000.0
    at_once = reported(world, lambda reports: [reports])
    assert at_once == reported(plain, lambda reports: [[one] for one in reports])


def test_the_same_job_twice_in_a_batch(world):
    created = world.select(size=3, ensemble_sizes=[1])
    job_id = world.pending(created)[0]
    report = world.report_of(world.claim(job_id))
    bad = dataclasses.replace(report, answers=report.answers[1:])
    outcomes = world.jobs.report_all([bad, report, report])
    assert isinstance(outcomes[0], InvalidInputError)
    assert outcomes[1].job is not None
    assert outcomes[2].job is None
    assert world.experiments.get(created).progress.jobs_done == 1


def test_claims_at_once_are_claims_one_after_the_other(world, plain):
    def claimed(one, batches):
        ids = [one.select(name, size=2, ensemble_sizes=[1], name=name) for name in ("a", "b")]
        with one.database.write() as session:
            lock_experiment(session, ids[1]).model_digest = "n" * 64
        asked = [
            ClaimJobRequest(worker="1"),
            ClaimJobRequest(worker="2", model_digest="n" * 64),
            ClaimJobRequest(worker="3", unfit_experiments=ids),
            ClaimJobRequest(worker="4", unfit_experiments=ids[:1]),
            *[ClaimJobRequest(worker="5", model_digest="n" * 64)] * 4,
        ]
        claims = [claim for batch in batches(asked) for claim in one.jobs.claim_all(batch)]
        assert len({claim.job.id for claim in claims if claim}) == 6
        return [
            claim and (ids.index(claim.experiment.id), claim.candidate.index, claim.job.worker)
            for claim in claims
        ]

    at_once = claimed(world, lambda asked: [asked])
    assert at_once == claimed(plain, lambda asked: [[one] for one in asked])
    assert at_once[2] is at_once[7] is None


def test_a_claim_that_the_database_refuses_fails_alone(world, monkeypatch):
    def lease(session, asked, deadline):
        claims = lease_jobs(session, asked, deadline)
        if any(one.worker == "refused" for one in asked):
            raise ValueError("refused")
        return claims

    monkeypatch.setattr(job_store, "lease_jobs", lease)
    world.select(size=2, ensemble_sizes=[1])
    asked = [ClaimJobRequest(worker=name) for name in ("1", "refused", "2")]
    outcomes = world.jobs.claim_all(asked)
    assert isinstance(outcomes[1], Exception)
    assert [outcomes[place].job.worker for place in (0, 2)] == ["1", "2"]
    assert outcomes[0].job.id != outcomes[2].job.id


async def test_a_store_that_breaks_down_fails_its_batch_and_not_the_next(world):
    _, reports = claimed(world, 2)
    outcomes = iter([UnavailableError("the disk is full"), None])

    def store(batch):
        if (error := next(outcomes)) is not None:
            raise error
        return world.jobs.report_all(batch)

    batches = CallBatcher(store)
    with pytest.raises(UnavailableError, match="disk is full"):
        await batches.submit(reports[0])
    assert isinstance(await batches.submit(reports[0]), Change)
