import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from modnorm.errors import NotFoundError
from modnorm.services.aggregator.experiments.experiment_store import experiment_id_of
from modnorm.services.aggregator.experiments.lifecycle import record
from modnorm.services.aggregator.storage.lookups import StoredText, lock_experiment
from tests.services.aggregator.world import at_once, on_both_databases
from verification.labs.waiting import wait_until

pytestmark = on_both_databases


def test_an_event_that_waited_for_its_turn_is_not_earlier_than_the_one_before(world):
    created = world.create()
    with ThreadPoolExecutor(1) as threads:
        with world.database.write() as session:
            experiment = lock_experiment(session, created)
            waiting = threads.submit(world.experiments.fail, created, "later")
            wait_until(lambda: world.database._transactions == 2, "the other transaction")
            time.sleep(0.2)  # it waits for the lock by now
            world.now += 1
            record(session, experiment, "first")
        waiting.result()
    events, _ = world.experiments.events(created, 0, 10)
    assert [event.message for event in events] == ["created", "first", "later"]
    assert [event.time for event in events] == [1_000, 1_001, 1_001]
    assert world.experiments.get(created).experiment.end_time == 1_001


def test_concurrent_creations_store_one_experiment(world):
    found = at_once(*[partial(world.create, "a")] * 6)
    assert found == [experiment_id_of("a")] * 6
    assert len(world.experiments.page(10)) == 1
    events, _ = world.experiments.events(found[0], 0, 10)
    assert [event.message for event in events] == ["created"]


def test_an_experiment_without_a_profile_is_calibrated_first(world):
    admission = world.admission(world.spec(method="modular_norm"))
    experiments = world.experiments
    created = experiments.create("a", admission).experiment.id
    experiments.leave_pending(created, 4)
    experiments.leave_pending(created, 4)
    assert world.state(created) == "CALIBRATING"
    assert experiments.calibrated(created, 2, 4)
    assert experiments.calibrated(created, 1, 4)
    progress = experiments.get(created).progress
    assert (progress.examples_done, progress.examples_total) == (2, 4)
    profile = StoredText("p" * 64, '{"layers":{}}')
    experiments.profiled(created, profile)
    experiments.profiled(created, StoredText("q" * 64, "{}"))
    record = experiments.get(created)
    assert (record.experiment.state, record.experiment.profile_digest) == ("SAMPLING", "p" * 64)
    assert world.experiments.artifact("p" * 64) == profile.text
    assert not experiments.calibrated(created, 3, 4)
    with pytest.raises(NotFoundError):
        world.experiments.artifact("q" * 64)


def test_sampling_twice_stores_candidates_once(world):
    created = world.select("a")
    before = world.pending(created)
    assert not world.experiments.sampled(created, (), None, ())
    assert world.pending(created) == before
    assert len(before) == 5
    candidates = world.experiments.candidates(created)
    assert [one.candidate.index for one in candidates] == [-1, 0, 1, 2, 3]


@pytest.mark.parametrize("selecting", [False, True])
def test_a_cancelled_experiment_stays_cancelled(world, selecting):
    created = world.select() if selecting else world.create()
    world.now = 2000.0
    cancelled = world.experiments.cancel(created).experiment
    assert (cancelled.state, cancelled.end_time, cancelled.error) == ("CANCELLED", 2000.0, "")
    world.now = 3000.0
    world.experiments.fail(created, "too late")
    world.experiments.wait_for(created, "too late")
    world.experiments.leave_pending(created, 4)
    again = world.experiments.cancel(created).experiment
    assert again == cancelled
    assert world.pending(created) == []
    assert world.experiments.driven() == ()


def test_the_awaited_service_is_reported_until_the_next_step(world):
    store = world.experiments

    def waits_for():
        return store.get(created).experiment.waits_for

    created = world.create()
    assert not waits_for()
    store.wait_for(created, "the calibrator is away")
    assert waits_for() == "the calibrator is away"
    store.leave_pending(created, 4)
    assert not waits_for()
    store.wait_for(created, "the calibrator is away")
    store.cancel(created)
    assert not waits_for()


def test_experiments_with_swapped_rows_do_not_deadlock(world):
    admission = world.admission(world.spec())
    crossed = dataclasses.replace(admission, texts=admission.texts[::-1])
    create = world.experiments.create
    calls = [partial(create, str(number), (admission, crossed)[number % 2]) for number in range(6)]
    assert len(at_once(*calls)) == 6
