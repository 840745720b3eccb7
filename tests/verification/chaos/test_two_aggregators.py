"""A search beside two aggregators on one database, as in a rolling update."""

import pytest

from verification.chaos.campaign import run_schedule, run_undisturbed
from verification.chaos.chaos_lab import AGGREGATORS, open_lab, working_folder
from verification.chaos.fault_schedule import EXPERIMENTS, Fault, Schedule, Step

CALIBRATED = EXPERIMENTS[-1]


@pytest.mark.integration
def test_two_aggregators_do_no_job_twice_and_lose_none(forks):
    steps = (
        Step(Fault.KILL_SAMPLER, 0, 0.1, 1),
        Step(Fault.UPDATE_AGGREGATOR, 2, 0.0, 2),
        Step(Fault.KILL_AGGREGATOR, 4, 0.0, 3),
        Step(Fault.UPDATE_AGGREGATOR, 6, 0.0, 4),
        Step(Fault.REPEAT_REPORT, 7, 0.0, 5),
    )
    with (
        working_folder() as folder,
        open_lab(forks, folder, supervised=False, paired=True) as lab,
    ):
        expected = run_undisturbed(lab, [CALIBRATED])
        verdict = run_schedule(lab, Schedule(1, CALIBRATED, steps), expected)
        assert verdict.complaints == []
        assert sum(lab.services[name].starts for name in AGGREGATORS) > 2
