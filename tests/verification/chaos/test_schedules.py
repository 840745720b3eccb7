"""Two short schedules against real processes; `make chaos` runs as many as are asked for."""

import pytest

from verification.chaos.campaign import run_schedule
from verification.chaos.fault_schedule import (
    EXPERIMENTS,
    SEARCH_FAULTS,
    Fault,
    Schedule,
    Step,
    draw,
)
from verification.chaos.planted import fencing_removed
from verification.chaos.small_experiments import JOBS

CALIBRATED = EXPERIMENTS[-1]
SEEDS = range(200)


def test_a_schedule_follows_from_its_seed():
    assert draw(7, JOBS) == draw(7, JOBS)
    assert draw(7, JOBS) != draw(8, JOBS)


def test_every_fault_comes_while_there_is_something_to_break():
    steps = [step for seed in SEEDS for step in draw(seed, JOBS).steps]
    assert {step.fault for step in steps} == set(SEARCH_FAULTS)
    assert max(step.after for step in steps) < JOBS


@pytest.mark.integration
def test_a_fault_could_change_votes_and_scores(expected):
    tables = expected[CALIBRATED].tables
    answers = [row[3] for row in tables["votes"]]
    assert all(answers)
    assert len(set(answers)) > 1
    assert {row[4] for row in tables["votes"]} == {True, False}
    assert len({row[4] for row in tables["jobs"]}) > 2


@pytest.mark.integration
def test_kills_and_a_flushed_broker_change_nothing(lab, expected):
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
