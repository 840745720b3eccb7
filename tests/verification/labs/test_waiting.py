import pytest

from verification.labs.waiting import wait_until


def test_an_event_that_came_is_not_waited_for():
    answers = iter([False, True])
    wait_until(lambda: next(answers), "the second answer", pause=0.0)


def test_an_event_that_never_comes_is_named():
    with pytest.raises(TimeoutError, match=r"timed out after 0\.01 s: the end"):
        wait_until(lambda: False, "the end", 0.01)
