import os

import pytest

from verification.labs.waiting import wait_until


def test_an_event_that_came_is_not_waited_for():
    answers = iter([False, True])
    wait_until(lambda: next(answers), "the second answer", pause=0.0)


def test_an_event_that_never_comes_is_named():
    with pytest.raises(TimeoutError, match=r"timed out after 0\.01 s: the end"):
        wait_until(lambda: False, "the end", 0.01)


def test_time_passes_slowly_while_other_processes_have_the_cores(tmp_path, monkeypatch):
    load = tmp_path / "loadavg"
    load.write_text(f"9.0 9.0 9.0 {100_000 * (os.cpu_count() or 1)}/900000 1\n")
    monkeypatch.setattr("verification.labs.waiting._LOAD", load)
    answers = iter([False] * 20 + [True])
    wait_until(lambda: next(answers), "the last answer", 0.001, pause=0.005)
