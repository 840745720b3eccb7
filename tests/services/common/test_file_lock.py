import multiprocessing
from contextlib import contextmanager

import pytest

from services.common.file_lock import hold


@contextmanager
def held(path, poll):
    lock = hold(path, poll)
    try:
        yield
    finally:
        lock.release()


def occupy(path, begun, over):
    with held(path, lambda: None):
        begun.set()
        over.wait(60)


def test_a_lock_is_exclusive_and_released_by_a_killed_process(tmp_path):
    path = tmp_path / "lock"
    spawn = multiprocessing.get_context("spawn")
    begun, over = spawn.Event(), spawn.Event()
    other = spawn.Process(target=occupy, args=(path, begun, over))
    other.start()
    assert begun.wait(60)
    polls = []

    def poll():
        polls.append(other.is_alive())
        if len(polls) == 2:
            other.kill()

    with held(path, poll):
        assert not other.is_alive()
    assert polls[:2] == [True, True]


def test_a_wait_can_be_ended(tmp_path):
    def end():
        raise KeyboardInterrupt

    path = tmp_path / "lock"
    with held(path, lambda: None), pytest.raises(KeyboardInterrupt), held(path, end):
        pass
    with held(path, end):
        pass
