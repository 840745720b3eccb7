"""Distillations that wait for a trainer, or for what a part of them waits for."""

from sqlmodel import col, select

from modnorm.services.aggregator.experiments.round_waiting import TRAINER_SECONDS
from modnorm.services.aggregator.storage.lab_counts import LabCountStore
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import Event
from tests.services.aggregator.world import LEASE_SECONDS


def wait(lab, parent, seconds=TRAINER_SECONDS):
    lab.world.now += seconds
    assert lab.world.stores.distillations.advance(parent) is None
    return lab.get(parent).experiment.waits_for


def until_training(lab, parent):
    jobs = lab.world.stores.jobs
    lab.run(parent, until=lambda: jobs.pending(parent, trains=True))
    (job_id,) = jobs.pending(parent, trains=True)
    return job_id


def events(lab, parent):
    query = select(Event).where(Event.experiment_id == parent).order_by(col(Event.cursor))
    with lab.world.database.read() as session:
        return [event.message for event in session.exec(query)]


def test_a_training_that_no_trainer_claims_says_so_once(lab):
    parent = lab.create(rounds=1)
    job_id = until_training(lab, parent)
    assert not wait(lab, parent, 1.0)
    assert "docker compose --profile trainer up" in wait(lab, parent)
    assert "no trainer" in wait(lab, parent)
    assert sum("no trainer" in message for message in events(lab, parent)) == 1
    assert lab.claim_training(job_id) is not None
    assert not wait(lab, parent)
    assert events(lab, parent)[-1] == "round 1: no longer waiting"


def test_a_training_says_that_it_waits_after_the_clock_was_put_back(lab):
    parent = lab.create(rounds=1)
    until_training(lab, parent)
    lab.world.now -= 3_600.0
    assert "no trainer" in wait(lab, parent)


def test_a_training_whose_trainer_is_gone_says_so(lab):
    parent = lab.create(rounds=1)
    lab.claim_training(until_training(lab, parent))
    assert not wait(lab, parent)
    lab.world.now += LEASE_SECONDS
    (job_id,) = lab.world.stores.jobs.expired()
    lab.world.stores.jobs.reap(job_id)
    assert not wait(lab, parent, 1.0)
    assert "no trainer" in wait(lab, parent)


def test_a_trainer_is_counted_apart_from_evaluators(lab):
    parent = lab.create(rounds=1)
    job_id = until_training(lab, parent)
    counts = LabCountStore(lab.world.database, lease_seconds=LEASE_SECONDS)
    assert counts.count().open_jobs[JobState.PENDING, Split.TRAINING] == 1
    lab.claim_training(job_id)
    (holder,) = counts.lease_holders(10)
    assert (holder.worker, holder.jobs, holder.trains) == ("t", 1, True)


def test_a_training_waits_for_busy_trainers(lab):
    first, second = lab.create(rounds=1), lab.create("other", rounds=1)
    job_id = until_training(lab, first)
    until_training(lab, second)
    lab.claim_training(job_id)
    assert wait(lab, second) == "all trainers are busy with other trainings"


def test_a_distillation_waits_for_what_its_search_waits_for(lab):
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.children(parent))
    (child,) = lab.children(parent)
    lab.world.stores.experiments.wait_for(child.id, "the sampler is down")
    assert wait(lab, parent, 0.0) == "the sampler is down"
    assert events(lab, parent)[-1] == "round 0: waiting: the sampler is down"
    lab.answer(child)
    lab.run(parent)
    assert not lab.get(parent).experiment.waits_for
