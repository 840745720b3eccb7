"""A distillation in a lab whose trainer, evaluators and aggregator are killed at seeded points."""

from contextlib import contextmanager

import pytest

from verification.chaos.campaign import run_schedule, run_undisturbed
from verification.chaos.chaos_lab import TRAINER, open_lab, working_folder
from verification.chaos.fault_schedule import (
    DISTILLATION,
    DISTILLATION_FAULTS,
    Fault,
    Schedule,
    Step,
    draw_distillation,
)
from verification.chaos.small_experiments import DISTILLATION_JOBS

SEED = 25
SEEDS = range(100)


@contextmanager
def trained_lab(forks):
    """Yield a new lab with a trainer: a lab reuses every finished training of equal content."""
    with (
        working_folder() as folder,
        open_lab(forks, folder, supervised=False, trains=True) as running,
    ):
        yield running


def test_every_schedule_of_a_distillation_kills_the_trainer():
    schedules = [draw_distillation(seed, DISTILLATION_JOBS) for seed in SEEDS]
    faults = [{step.fault for step in schedule.steps} for schedule in schedules]
    assert all(Fault.KILL_TRAINER in each for each in faults)
    assert set().union(*faults) == set(DISTILLATION_FAULTS)


@pytest.mark.integration
def test_kills_change_neither_the_dataset_nor_the_student(forks):
    with trained_lab(forks) as lab:
        expected = run_undisturbed(lab, [DISTILLATION])
    assert expected[DISTILLATION].tables["rounds"][-1][-1]
    steps = (
        Step(Fault.KILL_EVALUATOR, 1, 0.2, SEED),
        Step(Fault.KILL_AGGREGATOR, 5, 0.0, SEED),
        Step(Fault.KILL_EVALUATOR, 9, 0.0, SEED),
        Step(Fault.KILL_TRAINER, DISTILLATION_JOBS - 1, 0.0, SEED),
    )
    with trained_lab(forks) as lab:
        verdict = run_schedule(lab, Schedule(SEED, DISTILLATION, steps), expected)
        assert verdict.complaints == []
        assert all(each.did for each in verdict.injections)
        assert lab.services[TRAINER].starts > 1
        assert lab.services["aggregator"].starts > 1
