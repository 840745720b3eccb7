"""What a campaign prints about its schedules."""

import shlex

import pytest

from verification.chaos.__main__ import _parser
from verification.chaos.campaign import KINDS, repeat_command
from verification.chaos.fault_schedule import SEARCH_FAULTS, Fault


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_that_repeats_a_schedule_runs_no_other(kind):
    words = shlex.split(repeat_command(kind, 7, (Fault.CUT_LINK,)))
    asked = vars(_parser().parse_args(words[3:]))
    assert {name: asked[name] for name in KINDS} == {name: int(name == kind) for name in KINDS}
    assert (asked["seed"], asked["faults"]) == (7, "cut_link" if kind == "schedules" else "")


def test_a_repeated_search_draws_from_all_faults_by_default():
    assert "--faults" not in repeat_command("schedules", 7, SEARCH_FAULTS)
