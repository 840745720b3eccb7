import io
import re
import sys

import pytest
from rich.console import Console

from modnorm.cli.console import output
from modnorm.cli.progress import Screen, catch_up, follow
from modnorm.errors import PreconditionError
from modnorm.v1 import experiment_pb2 as experiments

PENDING, CALIBRATING, SELECTING, VOTING, SUCCEEDED = (
    experiments.EXPERIMENT_STATE_PENDING,
    experiments.EXPERIMENT_STATE_CALIBRATING,
    experiments.EXPERIMENT_STATE_SELECTING,
    experiments.EXPERIMENT_STATE_VOTING,
    experiments.EXPERIMENT_STATE_SUCCEEDED,
)


def event(state, done, total, waits_for="", **figures):
    progress = experiments.Progress(jobs_done=done, jobs_total=total, **figures)
    return experiments.WatchExperimentResponse(state=state, waits_for=waits_for, progress=progress)


EVENTS = [
    event(PENDING, 0, 0),
    event(SELECTING, 0, 8),
    event(SELECTING, 4, 8, best_reward=0.5, threshold_reward=0.25),
    event(VOTING, 0, 3, best_reward=0.5, jobs_failed=1),
    event(SUCCEEDED, 3, 3, best_reward=0.5),
]
AWAY, FULL = "the calibrator is away [connection refused]", "cannot write below /cache"
STARTS = [
    event(SELECTING, 0, 8, f"the engine starts: {stage}", engine_stage=stage)
    for stage in ("loading", "compiling")
]


def shown(events=EVENTS, *, terminal=False):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, highlight=False)
    with Screen(console, "small") as screen:
        follow(events, screen, 2, lambda: 0.125)
    return text.getvalue()


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        (
            EVENTS,
            [
                "pending",
                "selecting, 0/8, base reward 0.1250",
                "voting, 0/3, best reward 0.5000, base reward 0.1250, failed 1",
                "succeeded, 3/3, best reward 0.5000, base reward 0.1250",
            ],
        ),
        (
            [event(CALIBRATING, 0, 0, reason) for reason in ("", AWAY, AWAY, "", AWAY, FULL)],
            ["calibrating", f"calibrating, waiting: {AWAY}", f"calibrating, waiting: {FULL}"],
        ),
        (
            [*STARTS, event(SELECTING, 0, 8)],
            [
                "starting, 0/8, base reward 0.1250, waiting: the engine starts: loading",
                "starting, 0/8, base reward 0.1250, waiting: the engine starts: compiling",
                "selecting, 0/8, base reward 0.1250",
            ],
        ),
        (
            [event(SELECTING, 0, 8, "another attempt; boom\nx")],
            ["selecting, 0/8, base reward 0.1250, waiting: another attempt; boom\\nx"],
        ),
        (
            [event(SELECTING, 0, 8), *STARTS, event(SELECTING, 0, 8), event(SELECTING, 1, 8)],
            [
                "selecting, 0/8, base reward 0.1250",
                "starting, 0/8, base reward 0.1250, waiting: the engine starts: loading",
                "starting, 0/8, base reward 0.1250, waiting: the engine starts: compiling",
                "selecting, 0/8, base reward 0.1250",
            ],
        ),
    ],
    ids=["phases", "reasons", "start", "line break", "start within a phase"],
)
def test_a_log_gets_a_line_for_each_phase_and_each_reason_to_wait(events, lines):
    assert shown(events).splitlines() == [f"small: {line}" for line in lines]


def test_a_terminal_gets_bars_and_figures():
    text = shown(terminal=True)
    for part in ("small", "selecting", "4/8", "voting", "best reward 0.5000, base reward 0.1250"):
        assert part in text


def test_quiet_shows_nothing(monkeypatch):
    monkeypatch.setattr(output, "quiet", True)
    assert shown(terminal=True) == ""


@pytest.mark.parametrize("known_at", [0, 2])
def test_the_base_is_asked_for_until_it_is_known(known_at):
    asked: list[None] = []

    def base():
        asked.append(None)
        return 0.125 if len(asked) > known_at else None

    follow(EVENTS, Screen(Console(file=io.StringIO())), 2, base)
    assert len(asked) == known_at + 1


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        (1, [1, 2, 3, 4, 5, 6, 7]),
        (3, [1, 3, 4, 5, 6, 7]),
        (4, [1, 4, 5, 6, 7]),
        (6, [1, 4, 6, 7]),
        (7, [1, 4, 6, 7]),
    ],
)
def test_what_was_overtaken_before_anybody_looked_is_not_told_again(last, shown):
    states = [PENDING, SELECTING, SELECTING, SELECTING, VOTING, VOTING, SUCCEEDED]
    events = [event(state, 0, 0) for state in states]
    for cursor, each in enumerate(events, start=1):
        each.cursor = cursor
    now = experiments.Experiment(last_cursor=last)
    assert [each.cursor for each in catch_up(events, now)] == shown


def test_counts_have_a_rate_from_the_first_item_that_finishes_while_it_watches(monkeypatch):
    monkeypatch.setattr("modnorm.cli.progress._LINE_SECONDS", 0.0)
    text = io.StringIO()
    screen = Screen(Console(file=text, width=80, highlight=False))
    clock = iter(range(0, 1000, 10))
    screen.get_time = lambda: float(next(clock))
    for done in range(2, 6):
        screen.show("measuring", done, 5)
    screen.note("[x] measured")
    lines = text.getvalue().splitlines()
    assert lines[:2] == ["measuring, 2/5", "measuring, 3/5"]
    assert re.fullmatch(r"measuring, 4/5, 0\.\d\d/s, ETA 0:\d\d", lines[2])
    assert re.fullmatch(r"measuring, 5/5, 0\.\d\d/s", lines[3])
    assert lines[4:] == ["[x] measured"]


def test_a_run_tells_that_it_loads_libraries_before_it_does(
    modnorm, spec_file, monkeypatch, tmp_path
):
    shown: list[str] = []
    stderr = io.StringIO()

    def load(group):
        shown.append(stderr.getvalue())
        raise PreconditionError("no services")

    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr("modnorm.client.embedded.load_service", load)
    assert modnorm("run", spec_file, "--out", tmp_path / "out")[0] == 2
    assert shown[0]
