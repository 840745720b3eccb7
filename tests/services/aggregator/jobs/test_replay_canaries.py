import pytest

from modnorm.services.aggregator.lab_status import Canaries, Workers

H200 = {"device": "H200", "mode": "fast", "canary_of": "request"}


@pytest.fixture
def canaries():
    return Canaries(600.0)


def test_a_worker_that_differs_from_the_majority_gets_a_warning(canaries):
    for number in range(4):
        canaries.note(f"w{number}", {**H200, "canary": "aa"})
    assert not canaries.deviations()
    canaries.note("w2", {**H200, "canary": "bb"})
    assert set(canaries.deviations()) == {"w2"}
    canaries.note("w2", {**H200, "canary": "aa"})
    assert not canaries.deviations()


def test_two_differing_workers_both_get_a_warning(canaries):
    canaries.note("w1", {**H200, "canary": "aa"})
    canaries.note("w2", {**H200, "canary": "bb"})
    assert set(canaries.deviations()) == {"w1", "w2"}


@pytest.mark.parametrize("change", [{"device": "H100"}, {"canary_of": "other"}, {"mode": "x"}])
def test_other_environments_are_not_compared(canaries, change):
    canaries.note("w1", {**H200, "canary": "aa"})
    canaries.note("w2", {**H200, **change, "canary": "bb"})
    canaries.note("old", H200)
    assert not canaries.deviations()


def test_an_upgrade_that_changes_answers_is_warned_of_and_no_other(canaries):
    for number, version in enumerate(["1", "1", "2"]):
        canaries.note(f"w{number}", {**H200, "canary": "aa", "modnorm": version})
    assert not canaries.deviations()
    canaries.note("w2", {**H200, "canary": "bb", "modnorm": "2"})
    assert set(canaries.deviations()) == {"w2"}


def test_workers_that_have_left_are_forgotten():
    canaries = Canaries(-1.0)
    canaries.note("w1", {**H200, "canary": "aa"})
    canaries.note("w2", {**H200, "canary": "bb"})
    assert not canaries.deviations()


def test_a_lab_shows_the_warning_with_the_worker():
    workers = Workers()
    for name, canary in (("w1", "aa"), ("w2", "aa"), ("w3", "bb")):
        workers.record_claim(name, "1")
        workers.canaries.note(name, {**H200, "canary": canary})
    assert [bool(worker.warning) for worker in workers.messages({})] == [False, False, True]
