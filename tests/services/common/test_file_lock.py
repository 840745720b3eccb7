import errno
import fcntl
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
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


def test_a_released_lock_leaves_no_file(tmp_path):
    with held(tmp_path / "lock", lambda: None):
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    assert list(tmp_path.iterdir()) == []


def test_many_threads_hold_a_lock_one_at_a_time(tmp_path):
    holders: list[int] = []

    def work(number):
        for _ in range(10):
            with held(tmp_path / "lock", lambda: None):
                holders.append(number)
                assert holders == [number]
                holders.remove(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_excludes_nobody(tmp_path, monkeypatch):
    def flock(_descriptor, _operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with held(tmp_path / "lock", pytest.fail), held(tmp_path / "lock", pytest.fail):
        pass
    assert list(tmp_path.iterdir()) == []
