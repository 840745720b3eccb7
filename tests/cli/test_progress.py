import io
import time

import pytest
from rich.console import Console

from modnorm.cli.progress import Pace, catch_up, counting, display, follow
from modnorm.v1 import experiment_pb2 as experiments


def event(state, done, total, message="", **figures):
    made = experiments.WatchExperimentResponse(
        state=state,
        message=message,
        waits_for=message.removeprefix("waiting: ") if message.startswith("waiting: ") else "",
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


def shown(*, terminal, quiet=False, events=EVENTS, title="small"):
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, highlight=False)
    with display(console, title, 2, quiet=quiet) as screen:
        follow(events, screen, lambda: 0.125)
    return text.getvalue()


def test_lines_tell_each_phase_once_with_its_figures():
    lines = shown(terminal=False).splitlines()
    assert lines[0] == "small: pending"
    assert lines[1] == "small: selecting, 0/8, base reward 0.1250"
    assert lines[2].startswith("small: voting, 3/3")
    assert lines[2].endswith("best reward 0.5000, base reward 0.1250, failed 1")
    assert len(lines) == 4


def test_the_live_display_shows_bars_rate_and_figures():
    text = shown(terminal=True)
    for part in (
        "small",
        "selecting",
        "4/8",
        "voting",
        "3/3",
        "best reward 0.5000",
        "base reward 0.1250",
    ):
        assert part in text


CALIBRATING = experiments.EXPERIMENT_STATE_CALIBRATING
AWAY = "waiting: the calibrator is away [connection refused]"
FULL = "waiting: cannot write below /cache"


def test_lines_tell_each_reason_to_wait_once_a_phase():
    said = ["calibrating", AWAY, AWAY, "2 of 4 prompts are calibrated", AWAY, FULL]
    events = [event(CALIBRATING, 0, 0, message) for message in said]
    events.append(event(experiments.EXPERIMENT_STATE_SAMPLING, 0, 0, "sampling"))
    events.append(event(experiments.EXPERIMENT_STATE_SAMPLING, 0, 0, FULL))
    assert shown(terminal=False, events=events).splitlines() == [
        "small: calibrating",
        f"small: calibrating, {AWAY}",
        f"small: calibrating, {FULL}",
        "small: sampling",
        f"small: sampling, {FULL}",
    ]


STAGES = ("loading the weights", "compiling", "")


def started(place, stage):
    waits = f"waiting: the engine starts: {stage}" if stage else ""
    made = event(experiments.EXPERIMENT_STATE_SELECTING, 0, 8, waits, engine_stage=stage)
    made.time.FromMicroseconds(round((time.time() + 10 * place) * 1e6))
    return made


def test_the_start_of_an_engine_has_lines_and_seconds_of_its_own():
    events = [event(experiments.EXPERIMENT_STATE_SELECTING, 0, 8)]
    events += [started(place, stage) for place, stage in enumerate(STAGES)]
    lines = shown(terminal=False, events=events).splitlines()
    assert [line.removeprefix("small: selecting, 0/8, ") for line in lines] == [
        "base reward 0.1250",
        "base reward 0.1250, waiting: the engine starts: loading the weights, 0 s",
        "base reward 0.1250, waiting: the engine starts: compiling, 10 s",
        "start took 20.0 s, base reward 0.1250",
    ]
    text = shown(terminal=True, events=events)
    for part in ("starting", "1/1", "20 s", "selecting", "0/8"):
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


PENDING, SELECTING, VOTING, SUCCEEDED = (
    experiments.EXPERIMENT_STATE_PENDING,
    experiments.EXPERIMENT_STATE_SELECTING,
    experiments.EXPERIMENT_STATE_VOTING,
    experiments.EXPERIMENT_STATE_SUCCEEDED,
)


def numbered(*events):
    for cursor, each in enumerate(events, start=1):
        each.cursor = cursor
    return events


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
    events = numbered(
        event(PENDING, 0, 0),
        *(event(SELECTING, count, 2) for count in range(3)),
        *(event(VOTING, count, 1) for count in range(2)),
        event(SUCCEEDED, 1, 1),
    )
    now = experiments.Experiment(last_cursor=last)
    assert [each.cursor for each in catch_up(events, now)] == shown


@pytest.fixture
def counted(monkeypatch):
    """Count five items, calibrated and then measured; returns what was shown."""

    def show(*, terminal=False, quiet=False, apart=0.0, first=0):
        monkeypatch.setattr("modnorm.cli.progress._LINE_SECONDS", apart)
        text = io.StringIO()
        console = Console(file=text, force_terminal=terminal, width=80, highlight=False)
        with counting(console, quiet=quiet) as counts:
            for done in range(first, 6):
                counts.show("measuring", done, 5)
            counts.note("[x] measured")
        return text.getvalue()

    return show


def test_without_a_terminal_lines_tell_how_far_it_is(counted):
    lines = counted().splitlines()
    assert lines[0] == "measuring, 0/5"
    assert lines[1].startswith("measuring, 1/5, ")
    assert "ETA" in lines[1]
    assert lines[5].startswith("measuring, 5/5, ")
    assert lines[6:] == ["[x] measured"]


@pytest.mark.parametrize(
    ("counts", "rate"),
    [
        ([(0, 101.0), (1, 190.0)], None),
        ([(2, 190.0), (4, 194.0)], 0.5),
        ([(5, 50.0), (6, 190.0), (7, 194.0)], 0.25),  # the first five before it watched
        ([(1, 190.0), (2, 192.0), (2, 200.0)], 0.5),  # nothing new at the last
    ],
)
def test_the_rate_counts_from_the_first_item_that_finishes_while_it_watches(counts, rate):
    pace = Pace(opened=100.0)
    for done, at in counts:
        pace.count(done, at)
    assert pace.rate == (None if rate is None else pytest.approx(rate))
    remaining = None if rate is None else pytest.approx((10 - counts[-1][0]) / rate)
    assert pace.remaining(10) == remaining
