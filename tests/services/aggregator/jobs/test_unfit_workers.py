"""An experiment whose jobs no evaluator can do says why it waits."""

import pytest

from modnorm.services.aggregator.jobs import job_store
from modnorm.services.aggregator.jobs.job_store import UNFIT_SECONDS
from modnorm.services.aggregator.storage.tables import FailureKind

LACKS = "this worker does not have sums; install the package"
WAITS = f"an evaluator released its jobs: {LACKS}"


def release(world, claim, reason=LACKS, *, unfit=True):
    return world.fail(claim, FailureKind.RELEASED, reason, unfit=unfit)


def waits_for(world, experiment):
    return world.experiments.get(experiment).experiment.waits_for


@pytest.fixture
def selecting(world):
    """An experiment with pending jobs, which has had no event for a while."""
    created = world.select()
    world.now += UNFIT_SECONDS
    return created


def test_the_same_reason_is_recorded_once(world, selecting):
    release(world, world.claim_next(selecting))
    cursor = world.experiments.get(selecting).experiment.last_cursor
    for _ in range(3):
        world.now += UNFIT_SECONDS
        release(world, world.claim_next(selecting))
    assert world.experiments.get(selecting).experiment.last_cursor == cursor
    release(world, world.claim_next(selecting), "the sandbox is down")
    assert "the sandbox is down" in waits_for(world, selecting)


def test_a_result_ends_the_wait(world, selecting):
    release(world, world.claim_next(selecting))
    world.report(world.claim_next(selecting))
    assert waits_for(world, selecting) == ""


def test_the_first_answers_of_a_fit_evaluator_end_the_wait(world, selecting):
    release(world, world.claim_next(selecting))
    claim = world.claim_next(selecting)
    world.beat(claim, 0)
    assert world.jobs.end_waits() == ()
    assert waits_for(world, selecting) == WAITS
    world.beat(claim, 1)
    assert [change.experiment_id for change in world.jobs.end_waits()] == [selecting]
    assert waits_for(world, selecting) == ""
    assert world.jobs.end_waits() == ()


def test_an_experiment_that_another_evaluator_works_on_does_not_wait(world, selecting):
    busy, unfit = world.pending(selecting)[:2]
    world.claim(busy, "busy")
    release(world, world.claim(unfit))
    assert waits_for(world, selecting) == ""


async def test_watchers_and_lists_are_told(start_lab, spec, monkeypatch):
    monkeypatch.setattr(job_store, "UNFIT_SECONDS", 0.0)
    async with start_lab() as lab:
        created = await lab.create(spec())
        job = await lab.worker().claim_next()
        await lab.fail(job.lease, "RELEASED", LACKS, unfit=True)
        assert (await lab.get(created.id)).waits_for == WAITS
        async for event in lab.watch(created.id):
            if event.waits_for:
                assert event.message == f"waiting: {WAITS}"
                break
        job = await lab.worker().claim_next()
        await lab.heartbeat(job.lease, answers_done=1)
        async for told in lab.watch(created.id, event.cursor):
            assert told.message.startswith("no longer waiting")
            assert not told.waits_for
            break
        assert not (await lab.get(created.id)).waits_for
