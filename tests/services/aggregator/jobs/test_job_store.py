import dataclasses
import math
from functools import partial

import pytest
from sqlmodel import select

from modnorm.errors import InvalidInputError, NotFoundError, StaleLeaseError
from modnorm.search.voting import RowVote, count_votes
from modnorm.services.aggregator.experiments import phases
from modnorm.services.aggregator.experiments.run_writing import ensemble_votes
from modnorm.services.aggregator.storage.lookups import lock_experiment
from modnorm.services.aggregator.storage.tables import FailureKind, Job, JobState
from tests.faults import error_at
from tests.services.aggregator.world import at_once, on_both_databases

INFRASTRUCTURE = FailureKind.INFRASTRUCTURE

pytestmark = on_both_databases


def progress(world, experiment_id):
    return world.experiments.get(experiment_id).progress


def test_expired_leases_cost_attempts_until_the_candidate_fails(world):
    created = world.select(failures={"max_attempts": 2, "max_failed_candidates": 1})
    job = world.job_of(created, 0)
    first = world.claim(job.id)
    world.now += 61
    assert world.jobs.reap(job.id).pending
    assert world.beat(first).lost
    second = world.claim(job.id)
    assert second.job.token == 2
    with pytest.raises(StaleLeaseError):
        world.report(first)
    world.now += 61
    assert world.jobs.reap(job.id).pending is False
    job = world.job_of(created, 0)
    assert (job.state, job.attempts) == (JobState.FAILED, 2)
    assert "silent" in job.error
    with pytest.raises(StaleLeaseError):
        world.report(second)
    assert world.state(created) == "SELECTING"


def test_a_released_job_costs_no_attempt(world):
    created = world.select()
    job_id = world.pending(created)[0]
    for _ in range(5):
        assert world.fail(world.claim(job_id), FailureKind.RELEASED, "stopping").pending
    assert world.job_of(created, -1).attempts == 0
    world.claim(job_id)
    world.jobs.release_all()
    assert job_id in world.pending(created)


def test_a_repeated_failure_is_counted_once(world):
    created = world.select()
    claim = world.claim_next(created)
    for _ in range(2):
        world.fail(claim, INFRASTRUCTURE, "lost GPU")
    job = world.job_of(created, -1)
    assert (job.state, job.attempts, job.error) == (JobState.PENDING, 1, "lost GPU")
    with pytest.raises(StaleLeaseError):
        world.jobs.fail(claim.job.id, claim.job.token - 1, INFRASTRUCTURE, "old")
    with pytest.raises(NotFoundError):
        world.jobs.fail("unknown", 1, INFRASTRUCTURE, "old")


def test_failed_candidates_are_excluded_up_to_the_budget(world):
    created = world.select(ensemble_sizes=[1, 2], failures={"max_failed_candidates": 1})
    world.fail(world.claim(world.job_of(created, 2).id))
    world.work(created)
    record = world.experiments.get(created)
    assert record.experiment.state == "SUCCEEDED"
    assert all(2 not in ensemble.experts for ensemble in record.ensembles)
    events, _ = world.experiments.events(created, 0, 100)
    assert any("candidate 2" in event.message and "nan" in event.message for event in events)


def test_past_the_budget_the_experiment_fails(world):
    created = world.select()
    world.fail(world.claim(world.job_of(created, 2).id))
    record = world.experiments.get(created)
    assert record.experiment.state == "FAILED"
    assert "candidate 2" in record.experiment.error
    assert "nan" in record.experiment.error
    assert world.pending(created) == []


def test_too_few_scored_candidates_fail_the_experiment(world):
    created = world.select(failures={"max_failed_candidates": 4})
    for index in (0, 1):
        world.fail(world.claim(world.job_of(created, index).id))
    world.work(created)
    record = world.experiments.get(created)
    assert record.experiment.state == "FAILED"
    assert "K = 3" in record.experiment.error


@pytest.mark.parametrize(("index", "kind"), [(-1, FailureKind.CANDIDATE), (0, FailureKind.FATAL)])
def test_failures_that_end_the_experiment(world, index, kind):
    created = world.select(failures={"max_failed_candidates": 4})
    other = world.claim(world.job_of(created, 3).id)
    world.fail(world.claim(world.job_of(created, index).id), kind, "bad model")
    record = world.experiments.get(created)
    assert record.experiment.state == "FAILED"
    assert "bad model" in record.experiment.error
    events, _ = world.experiments.events(created, 0, 100)
    assert "bad model" in events[-1].message
    assert world.beat(other).cancel
    with pytest.raises(StaleLeaseError):
        world.report(other)
    world.fail(other, FailureKind.RELEASED, "told to")
    assert world.experiments.get(created) == record


def test_a_failed_expert_fails_the_experiment(world):
    created = world.select(failures={"max_failed_candidates": 4})
    for job_id in world.pending(created):
        world.report(world.claim(job_id))
    assert world.state(created) == "VOTING"
    claim = world.claim(world.pending(created)[-1])
    world.fail(claim)
    assert "expert" in world.experiments.get(created).experiment.error


def bad_reports(report):
    answers = report.answers
    odd = dataclasses.replace(answers[1], reward=math.nan)
    endless = dataclasses.replace(answers[1], reward=math.inf)
    huge = [dataclasses.replace(answer, reward=1e308) for answer in answers]
    less = dataclasses.replace(answers[1], tokens=-1)
    descriptor = report.descriptor
    for name, changes in {
        "missing": {"answers": answers[:-1]},
        "repeated": {"answers": (answers[0], *answers[:-1])},
        "twice": {"answers": (answers[0], *answers)},
        "out of order": {"answers": answers[::-1]},
        "unknown": {"answers": (*answers, dataclasses.replace(answers[0], row=len(answers)))},
        "none": {"answers": ()},
        "nan": {"answers": (answers[0], odd, *answers[2:])},
        "infinite": {"answers": (answers[0], endless, *answers[2:])},
        "of no finite sum": {"answers": huge},
        "tokens": {"answers": (answers[0], less, *answers[2:])},
        "seconds": {"generate_seconds": math.nan},
        "seed": {"descriptor": dataclasses.replace(descriptor, seed=99)},
        "map": {"descriptor": dataclasses.replace(descriptor, scale_map="x")},
        "unresolved": {"descriptor": descriptor.resolved(())},
        "wild": {"descriptor": descriptor.resolved((math.nan, 1.0))},
    }.items():
        yield name, dataclasses.replace(report, **changes)


def test_reports_that_do_not_fit_are_refused_and_nothing_is_stored(world):
    created = world.select()
    claim = world.claim(world.job_of(created, 1).id)
    good = world.report_of(claim)
    before = world.experiments.get(created)
    for name, report in bad_reports(good):
        with pytest.raises(InvalidInputError) as caught:
            world.jobs.report(report)
        assert caught.value.field, name
    assert world.experiments.get(created) == before
    world.jobs.report(good)
    assert progress(world, created).jobs_done == 1


def test_heldout_answers_come_from_the_stored_coefficients(world):
    created = world.select()
    for job_id in world.pending(created):
        world.report(world.claim(job_id))
    claim = world.claim(world.pending(created)[-1])
    good = world.report_of(claim)
    assert good.descriptor.coefficients == (0.5, float(claim.candidate.index))
    other = dataclasses.replace(good, descriptor=good.descriptor.resolved((0.5, 9.0)))
    with error_at("descriptor.coefficients"):
        world.jobs.report(other)
    world.jobs.report(good)


def test_experts_answer_every_heldout_row_and_every_question(world):
    created = world.select()
    while world.state(created) == "SELECTING":
        world.report(world.claim_next(created))
    while world.pending(created):
        good = world.report_of(world.claim_next(created))
        for answers in (good.answers[1:], good.answers[:-1], ()):
            with error_at("answers.row", "must cover the rows 0 to"):
                world.jobs.report(dataclasses.replace(good, answers=answers))
        world.jobs.report(good)
    assert world.state(created) == "SUCCEEDED"


def test_the_last_report_of_a_phase_begins_the_next(world):
    created = world.select(size=6, prefixes=[3, 6], ensemble_sizes=[1, 3])
    pending = world.pending(created)
    for job_id in pending[:-1]:
        assert world.report(world.claim(job_id)).pending is False
    change = world.report(world.claim(pending[-1]))
    assert change.pending
    opened = world.pending(created)
    assert world.state(created) == "VOTING"

    world.work(created)
    record = world.experiments.get(created)
    assert record.experiment.end_time == world.now
    assert None not in dataclasses.astuple(record.base)
    assert record.progress.jobs_done == record.progress.jobs_total == len(opened)


def test_concurrent_last_reports_advance_the_experiment_once(world):
    created = world.select(size=7, ensemble_sizes=[1])
    reports = [world.report_of(world.claim(one)) for one in world.pending(created)]
    changes = at_once(*(partial(world.jobs.report, report) for report in reports))
    assert len([change for change in changes if change.pending]) == 1
    assert world.state(created) == "VOTING"
    events, _ = world.experiments.events(created, 0, 100)
    assert [event.cursor for event in events] == list(range(1, len(events) + 1))
    assert [event.state for event in events].count("VOTING") == 1


def test_pending_jobs_are_oldest_first_in_candidate_order(world):
    world.now = 2000.0
    late = world.select("late")
    world.now = 1000.0
    early = world.select("early")
    claims = [world.jobs.claim("w") for _ in range(6)]
    assert [one.candidate.index for one in claims] == [-1, 0, 1, 2, 3, -1]
    assert [one.experiment.id for one in claims] == [early] * 5 + [late]


def test_an_experiment_that_fails_in_the_vote_keeps_no_votes(world, monkeypatch):
    counted: list[tuple[RowVote, ...]] = []

    def count_once(*arguments):
        if counted:
            raise InvalidInputError("cannot be voted on")
        counted.append(count_votes(*arguments))
        return counted[0]

    monkeypatch.setattr(phases, "count_votes", count_once)
    created = world.select()
    world.work(created)
    record = world.experiments.get(created)
    assert record.experiment.state == "FAILED"
    assert "cannot be voted on" in record.experiment.error
    assert counted
    assert not record.ensembles
    assert not ensemble_votes(world.database, record)


def test_jobs_of_the_loaded_model_go_first(world):
    older = world.select("older")
    world.now += 1
    newer = world.select("newer", name="newer")
    with world.database.write() as session:
        lock_experiment(session, newer).model_digest = "n" * 64
    named, ids = world.pending(older)[0], world.pending(newer)
    leased = [world.jobs.claim("w", "n" * 64).job.id for _ in range(len(ids) + 1)]
    assert leased == [*ids, named]


def test_a_worker_gets_no_job_of_experiments_that_it_is_unfit_for(world):
    older, newer = world.select("older"), world.select("newer", name="newer")
    assert world.jobs.claim("w", unfit=[older]).experiment.id == newer
    assert world.jobs.claim("w", unfit=[older, newer]) is None


def test_a_job_that_failed_goes_last(world):
    created = world.select()
    first = world.jobs.claim("w")
    world.fail(first, FailureKind.INFRASTRUCTURE, "a fault")
    leased = [world.jobs.claim("w").job.id for _ in range(len(world.pending(created)))]
    assert leased[-1] == first.job.id


def test_concurrent_claims_lease_a_job_once(world):
    created = world.select("many", size=40, ensemble_sizes=[1])
    ids = world.pending(created)

    def claim(worker):
        granted = []
        for _ in range(2):
            claims = [world.jobs.claim(worker) for _ in ids]
            leased = [one for one in claims if one is not None]
            granted += leased
            for one in leased[:5]:
                world.fail(one, FailureKind.RELEASED, "resting")
        return worker, granted

    granted = dict(at_once(*(partial(claim, worker) for worker in "abcd")))
    leases = [(one.job.id, one.job.token) for claims in granted.values() for one in claims]
    assert len(leases) == len(set(leases)) >= len(ids)
    assert {job_id for job_id, _ in leases} == set(ids)
    assert all(one.job.worker == worker for worker, claims in granted.items() for one in claims)
    with world.database.read() as session:
        jobs = session.exec(select(Job).where(Job.experiment_id == created)).all()
    assert {job.id: job.token for job in jobs} == {
        job_id: max(token for other, token in leases if other == job_id) for job_id in ids
    }
