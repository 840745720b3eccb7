"""Removal of old experiments beside work that needs a part of them."""

import threading

from modnorm.errors import NotFoundError
from modnorm.services.aggregator.experiments import lifecycle, predictions
from modnorm.services.aggregator.experiments.predictions import AskedQuestions
from modnorm.services.aggregator.experiments.removal import remove_ended, remove_unused_students
from modnorm.services.aggregator.storage.states import Purpose
from modnorm.services.aggregator.storage.tables import ObsoleteStudent, Round
from tests.services.aggregator.experiments.removing import DAY
from verification.labs.waiting import HANG_SECONDS


def test_two_removals_at_once_both_end_well(world):
    old = world.select("old")
    world.work(old)
    removed = []
    for _ in range(2):
        with world.database.write() as session:
            removed.append(remove_ended(session, old, world.now + DAY))
    assert removed == [True, False]


def test_a_removal_waits_for_a_prediction_of_a_part_without_a_deadlock(lab, monkeypatch):
    world = lab.world
    parent = lab.create(rounds=1)
    lab.run(parent)
    (search,) = lab.children(parent, Purpose.SEARCH)
    asked = AskedQuestions(search.id, None, None, [("row 0", {"question": "Say 0."})], False)
    removed = []

    def remove_parent():
        with world.database.write() as session:
            removed.append(remove_ended(session, parent, world.now + DAY))

    removal = threading.Thread(target=remove_parent)

    def add_late(*given):
        removal.start()
        removal.join(0.3)
        assert removal.is_alive()
        lifecycle.add_jobs(*given)

    monkeypatch.setattr(predictions, "add_jobs", add_late)
    assert world.stores.predictions.open(asked).pending
    removal.join(HANG_SECONDS)
    assert removed == [True]


def test_removal_waits_for_a_round_that_is_being_stored(lab):
    world = lab.world
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: lab.is_trained(parent))
    with world.database.write() as session:
        part = session.get_one(Round, (parent, 1))
        digest, part.student_digest = part.student_digest, ""
        session.add(ObsoleteStudent(digest=digest))
    removal = threading.Thread(
        target=remove_unused_students, args=(world.database, world.students)
    )
    with world.database.write() as session:
        session.get_one(Round, (parent, 1)).student_digest = digest
        session.flush()
        removal.start()
        removal.join(0.3)
        assert removal.is_alive()
    removal.join(HANG_SECONDS)
    assert world.students.path(digest) is not None


def test_a_report_waits_for_the_removal_of_its_student_and_is_refused(lab, monkeypatch):
    world = lab.world
    parent = lab.create(rounds=1)
    lab.run(parent, until=lambda: world.stores.jobs.pending(parent, trains=True))
    (job_id,) = world.stores.jobs.pending(parent, trains=True)
    report = lab.report_of(lab.claim_training(job_id))
    with world.database.write() as session:
        session.add(ObsoleteStudent(digest=report.student_digest))
    refused = []

    def send():
        try:
            lab.trainings.report(report)
        except NotFoundError as error:
            refused.append(error)

    reporting = threading.Thread(target=send)
    remove_files = world.students.remove

    def remove_late(digest):
        reporting.start()
        reporting.join(0.3)
        remove_files(digest)

    monkeypatch.setattr(world.students, "remove", remove_late)
    assert remove_unused_students(world.database, world.students) == 1
    reporting.join(HANG_SECONDS)
    assert len(refused) == 1
    assert not lab.is_trained(parent)
