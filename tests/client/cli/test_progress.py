import io
import time

import pytest
from rich.console import Console

from modnorm.client.cli.progress import display, follow
from modnorm.v1 import experiment_pb2 as experiments


def event(state, done, total, **figures):
    made = experiments.WatchExperimentResponse(
        state=state,
        progress=experiments.Progress(jobs_done=done, jobs_total=total, **figures),
    )
    made.time.FromMicroseconds(round((time.time() + done) * 1e6))
    return made


EVENTS = [
    event(experiments.EXPERIMENT_STATE_PENDING, 0, 0),
    event(experiments.EXPERIMENT_STATE_SELECTING, 0, 8),
    event(experiments.EXPERIMENT_STATE_SELECTING, 4, 8, best_reward=0.5, threshold_reward=0.25),
    event(experiments.EXPERIMENT_STATE_VOTING, 3, 3, best_reward=0.5, jobs_failed=1),
    event(experiments.EXPERIMENT_STATE_SUCCEEDED, 3, 3, best_reward=0.5),
]


def shown(*, terminal, quiet=False):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, highlight=False)
    with display(console, "small", 2, quiet=quiet) as screen:
        follow(EVENTS, screen, lambda: 0.125)
    return text.getvalue()


def test_lines_tell_each_phase_once_with_its_figures():
    lines = shown(terminal=False).splitlines()
    assert lines[0] == "small: pending"
    assert lines[1] == "small: selecting, 0/8, base 0.1250"
    assert lines[2].startswith("small: voting, 3/3")
    assert lines[2].endswith("best 0.5000, base 0.1250, failed 1")
    assert len(lines) == 4


def test_the_live_display_shows_bars_rate_and_figures():
    text = shown(terminal=True)
    for part in ("small", "selecting", "4/8", "voting", "3/3", "best 0.5000", "base 0.1250"):
        assert part in text


def test_quiet_shows_nothing():
    assert shown(terminal=True, quiet=True) == ""


@pytest.mark.parametrize("known_at", [0, 2])
def test_the_base_is_asked_for_until_it_is_known(known_at):
    asked: list[None] = []

    def base():
        asked.append(None)
        return 0.125 if len(asked) > known_at else None

    console = Console(file=io.StringIO(), width=120)
    with display(console, "small", 2, quiet=True) as screen:
        follow(EVENTS, screen, base)
    assert len(asked) == known_at + 1
