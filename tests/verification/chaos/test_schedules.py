"""Short schedules against real processes; `make chaos` runs as many as are asked for."""

import random
from unittest.mock import Mock, create_autospec

import pytest

from verification.chaos import faults
from verification.chaos.campaign import fencing_removed, run_schedule
from verification.chaos.outcome import Observation, Observer
from verification.chaos.schedules import EXPERIMENTS, JOBS, Fault, Schedule, Step, draw

CALIBRATED = EXPERIMENTS[-1]


def test_every_fault_comes_while_there_is_something_to_break():
    schedules = [draw(seed) for seed in range(200)]
    assert schedules == [draw(seed) for seed in range(200)]
    steps = [step for schedule in schedules for step in schedule.steps]
    assert {step.fault for step in steps} == set(Fault)
    assert {schedule.experiment for schedule in schedules} == set(EXPERIMENTS)
    assert max(step.after for step in steps) < JOBS
    assert all(callable(getattr(faults, fault)) for fault in Fault)


@pytest.mark.parametrize("fault", [Fault.KILL_EVALUATOR, Fault.PAUSE_EVALUATOR])
def test_a_fault_of_a_lease_counts_as_missed_if_none_comes(monkeypatch, fault):
    monkeypatch.setattr(faults, "PATIENCE", 0.0)
    observer, lab = create_autospec(Observer, instance=True), Mock(workers=("one",))
    observer.observe.return_value = Observation(holders=("another",))
    context = faults.FaultContext(lab, observer, random.Random(0))
    assert getattr(faults, fault)(context) is None
    lab.kill.assert_not_called()


@pytest.mark.integration
def test_kills_and_a_flushed_broker_change_nothing(lab, expected):
    tables = expected[CALIBRATED].tables
    # A fault could change votes and scores.
    assert len({row[3] for row in tables["votes"]}) > 1
    assert {row[4] for row in tables["votes"]} == {True, False}
    assert len({row[4] for row in tables["jobs"]}) > 2
    steps = (
        Step(Fault.KILL_CALIBRATOR, 0, 0.3, 1),
        Step(Fault.KILL_AGGREGATOR, 2, 0.0, 2),
        Step(Fault.FLUSH_BROKER, 4, 0.0, 3),
        Step(Fault.KILL_EVALUATOR, 5, 0.0, 4),
    )
    verdict = run_schedule(lab, Schedule(1, CALIBRATED, steps), expected)
    assert verdict.complaints == []
    assert any("in the middle of" in (each.did or "") for each in verdict.injections)


@pytest.mark.integration
def test_fencing_is_what_keeps_a_late_report_out(lab, expected):
    late = Schedule(2, CALIBRATED, (Step(Fault.LATE_REPORT, 1, 0.0, 5),))
    verdict = run_schedule(lab, late, expected)
    assert verdict.complaints == []
    with fencing_removed(lab):
        verdict = run_schedule(lab, late, expected)
    assert any("late report" in each for each in verdict.complaints)
