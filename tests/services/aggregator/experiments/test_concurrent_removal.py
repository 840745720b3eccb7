"""Removal of old experiments beside work that needs a part of them."""

import threading

from sqlmodel import select

from modnorm.services.aggregator.storage.tables import Job, Split
from tests.services.aggregator.experiments.removing import DAY, remove, rows
from verification.labs.waiting import HANG_SECONDS


def test_removal_waits_for_a_transaction_that_copies_results(world):
    old = world.select()
    world.work(old)
    removal = threading.Thread(target=remove, args=(world.database, world.now + DAY))
    with world.database.write() as session:
        session.add(Job(id="other", experiment_id=old, candidate=-1, split=Split.DEVELOPMENT))
        session.flush()
        removal.start()
        removal.join(0.3)
        jobs = session.exec(select(Job.id).where(Job.experiment_id == old)).all()
        assert len(jobs) > 1
        session.rollback()
    removal.join(HANG_SECONDS)
    assert not any(old in row for _, row in rows(world.database))
