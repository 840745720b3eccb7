"""Reuse of results of an equal experiment that ended early."""

import dataclasses

import pytest
from sqlmodel import select

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.experiments import phases
from modnorm.services.aggregator.storage.states import FailureKind, JobState
from modnorm.services.aggregator.storage.stored_artifacts import StoredText
from modnorm.services.aggregator.storage.tables import Candidate


def some_done(world, experiment_id, count):
    for job_id in world.stores.jobs.pending(experiment_id)[:count]:
        world.stores.jobs.report(world.report_of(world.claim(job_id)))


def failed_after(world, count, request_id="first", **changes):
    """Store an experiment that fails after a number of finished jobs."""
    created = world.select(request_id, **changes)
    some_done(world, created, count)
    world.stores.experiments.fail(created, "the disk is full")
    return created


def records(world, experiment_id):
    return world.stores.results.candidates(experiment_id, -2, 100)


def outcome(job):
    fields = job.model_dump(exclude={"id", "experiment_id", "token", "lease_deadline", "worker"})
    return {**fields, "worker": job.worker or None}


def last_event(world, experiment_id):
    events, _ = world.stores.events.after(experiment_id, 0, 1000)
    return events[-1]


def answers(world, experiment_id, record):
    job = record.selection
    return world.stores.results.answers(experiment_id, job.candidate, job.split)


def test_finished_results_are_reused_and_the_rest_is_pending(world):
    first = failed_after(world, 3)
    before = world.stores.experiments.get(first), records(world, first)
    world.now += 5
    second = world.select("second")
    states = [record.selection.state for record in records(world, second)]
    assert states == [JobState.DONE] * 3 + [JobState.PENDING] * 2
    for old, new in zip(records(world, first)[:3], records(world, second)[:3], strict=True):
        assert outcome(new.selection) == outcome(old.selection)
        assert new.candidate.coefficients == old.candidate.coefficients
        assert answers(world, second, new) == answers(world, first, old)
    progress = world.stores.experiments.get(second).progress
    assert (progress.jobs_done, progress.jobs_total) == (3, 5)
    assert f"3 results are reused from experiment {first}" in last_event(world, second).message
    assert (world.stores.experiments.get(first), records(world, first)) == before


def test_the_results_equal_those_of_an_undisturbed_experiment(world):
    failed_after(world, 4)
    resumed = world.select("second")
    world.work(resumed)
    undisturbed = world.select("third", pool="published")
    assert world.stores.experiments.get(undisturbed).progress.jobs_done == 0
    world.work(undisturbed)
    found = [world.stores.experiments.get(one) for one in (resumed, undisturbed)]
    assert [one.experiment.state for one in found] == ["SUCCEEDED"] * 2
    figures = [
        [(one.population, one.ensemble_size, one.experts, one.metric) for one in each.ensembles]
        for each in found
    ]
    assert figures[0] == figures[1]


def test_held_out_answers_are_reused_too(world):
    first = world.select("first")
    some_done(world, first, 5)
    assert world.state(first) == "VOTING"
    some_done(world, first, 2)
    world.stores.experiments.cancel(first)
    second = world.select("second")
    assert world.state(second) == "VOTING"
    pending = world.stores.jobs.pending(second)
    held = [record.heldout for record in records(world, second) if record.heldout]
    assert [job.state for job in held].count(JobState.DONE) == 2
    assert len(pending) == len(held) - 2
    world.work(second)
    assert world.state(second) == "SUCCEEDED"


def test_failed_steps_are_retried(world):
    created = world.select("first", failures={"max_attempts": 2})
    some_done(world, created, 3)
    job_id = world.stores.jobs.pending(created)[0]
    token = world.claim(job_id).job.token
    world.stores.jobs.fail(job_id, token, FailureKind.CANDIDATE, "nan")
    assert world.state(created) == "FAILED"
    second = world.select("second", failures={"max_attempts": 2})
    world.work(second)
    assert world.state(second) == "SUCCEEDED"
    assert [record.selection.attempts for record in records(world, second)] == [1] * 5


def test_an_experiment_may_end_when_it_begins(world, monkeypatch):
    def fail(*_):
        raise InvalidInputError("cannot be voted on")

    created = world.select("first")
    with monkeypatch.context() as patch:
        patch.setattr(phases, "count_votes", fail)
        world.work(created)
    assert world.state(created) == "FAILED"
    second = world.select("second")
    record = world.stores.experiments.get(second)
    assert record.experiment.state == "SUCCEEDED"
    assert len(record.ensembles) == 2


def test_a_chain_of_failures_loses_nothing(world):
    failed_after(world, 2)
    failed_after(world, 2, "second")
    nothing_done = world.create("third")
    world.stores.experiments.fail(nothing_done, "the sampler is down")
    assert world.stores.experiments.get(world.select("fourth")).progress.jobs_done == 4


def test_failure_limits_do_not_prevent_reuse(world):
    failed_after(world, 3, failures={"max_attempts": 1})
    second = world.select("second", failures={"max_failed_candidates": 2})
    assert world.stores.experiments.get(second).progress.jobs_done == 3


@pytest.mark.parametrize("changes", [{"seed": 7}, {"ensemble_sizes": [1]}, {"name": "anew"}])
def test_another_spec_reuses_nothing(world, changes):
    failed_after(world, 3)
    second = world.select("second", **changes)
    assert world.stores.experiments.get(second).progress.jobs_done == 0


def test_other_rows_reuse_nothing(world, monkeypatch):
    failed_after(world, 3)
    admission = world.admission
    other = StoredText("0" * 64, '{"answer": "1", "question": "?"}')
    monkeypatch.setattr(
        world, "admission", lambda spec: dataclasses.replace(admission(spec), selection=other)
    )
    second = world.select("second")
    assert world.stores.experiments.get(second).progress.jobs_done == 0


def test_other_prompts_reuse_nothing(world, monkeypatch):
    failed_after(world, 3)
    admission = world.admission
    monkeypatch.setattr(
        world, "admission", lambda spec: dataclasses.replace(admission(spec), prompts_digest="0")
    )
    second = world.select("second")
    assert world.stores.experiments.get(second).progress.jobs_done == 0


def test_another_tenant_sees_nothing(world, monkeypatch):
    failed_after(world, 3)
    create = world.stores.experiments.create
    monkeypatch.setattr(
        world.stores.experiments, "create", lambda *given: create(*given, tenant="others")
    )
    second = world.select("second")
    assert world.stores.experiments.get(second).experiment.tenant == "others"
    assert world.stores.experiments.get(second).progress.jobs_done == 0


def test_a_different_candidate_with_the_same_index_is_not_reused(world):
    first = failed_after(world, 3)
    with world.database.write() as session:
        query = select(Candidate).where(Candidate.experiment_id == first, Candidate.index == 1)
        session.exec(query).one().scale_map_digest = "0" * 64
    second = world.select("second")
    done = [one.candidate.index for one in records(world, second) if one.selection.metric]
    assert done == [-1, 0]


@pytest.mark.parametrize("finished", [True, False])
def test_only_experiments_that_ended_early_are_reused(world, finished):
    first = world.select("first")
    some_done(world, first, 3)
    if finished:
        world.work(first)
    assert world.state(first) == ("SUCCEEDED" if finished else "SELECTING")
    second = world.select("second")
    assert world.stores.experiments.get(second).progress.jobs_done == 0
