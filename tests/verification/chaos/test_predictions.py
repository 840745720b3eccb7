"""A prediction in a lab whose parts are killed."""

import pytest

from verification.chaos.campaign import run_schedule, run_undisturbed
from verification.chaos.fault_schedule import (
    PREDICTION_FAULTS,
    PREDICTIONS,
    Fault,
    Schedule,
    Step,
    draw_prediction,
)
from verification.chaos.small_experiments import PREDICTION_JOBS

SEEDS = range(200)


def test_schedules_of_predictions_have_all_their_faults_and_kinds():
    schedules = [draw_prediction(seed, PREDICTION_JOBS) for seed in SEEDS]
    assert schedules == [draw_prediction(seed, PREDICTION_JOBS) for seed in SEEDS]
    steps = [step for schedule in schedules for step in schedule.steps]
    assert {step.fault for step in steps} == set(PREDICTION_FAULTS)
    assert {schedule.experiment for schedule in schedules} == set(PREDICTIONS)
    assert max(step.after for step in steps) < PREDICTION_JOBS


@pytest.mark.integration
def test_kills_change_no_answer(lab):
    name = PREDICTIONS[0]
    expected = run_undisturbed(lab, [name])
    assert len(expected[name].tables["predictions"]) > 1
    steps = (
        Step(Fault.KILL_EVALUATOR, 0, 0.0, 1),
        Step(Fault.KILL_AGGREGATOR, 2, 0.0, 3),
        Step(Fault.FLUSH_BROKER, 3, 0.0, 4),
    )
    before = lab.services["aggregator"].starts
    verdict = run_schedule(lab, Schedule(1, name, steps), expected)
    assert verdict.complaints == []
    assert lab.services["aggregator"].starts > before
