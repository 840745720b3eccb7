import multiprocessing
from pathlib import Path

import pytest

from services.evaluator.load_lock import turn


def hold(lock, begun, over):
    with turn(lock, lambda: None):
        begun.set()
        over.wait(60)


def test_one_loads_at_a_time_and_a_killed_one_frees_the_turn(tmp_path):
    lock = tmp_path / "lock"
    spawn = multiprocessing.get_context("spawn")
    begun, over = spawn.Event(), spawn.Event()
    other = spawn.Process(target=hold, args=(lock, begun, over))
    other.start()
    assert begun.wait(60)
    polls = []

    def poll():
        polls.append(other.is_alive())
        if len(polls) == 2:
            other.kill()

    with turn(lock, poll):
        assert not other.is_alive()
    assert polls[:2] == [True, True]


def test_a_wait_can_be_ended(tmp_path):
    def end():
        raise KeyboardInterrupt

    lock = tmp_path / "lock"
    with turn(lock, lambda: None), pytest.raises(KeyboardInterrupt), turn(lock, end):
        pass
    with turn(lock, end):
        pass


def test_who_has_a_gpu_alone_waits_for_nobody():
    with turn(None, lambda: pytest.fail("it waited")):
        assert not Path("None").exists()
