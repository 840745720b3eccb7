import errno
import fcntl
import multiprocessing
import os

import pytest

from modnorm.client.run_directory import hold
from modnorm.locks import is_locked, locked, require_locks
from tests.faults import error_at


def occupy(path, begun, over):
    with locked(path, lambda: None):
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

    with locked(path, poll):
        assert not other.is_alive()
    assert polls[:2] == [True, True]


def test_a_wait_can_be_ended(tmp_path):
    def end():
        raise KeyboardInterrupt

    path = tmp_path / "lock"
    with locked(path, lambda: None), pytest.raises(KeyboardInterrupt), locked(path, end):
        pass
    with locked(path, end):
        pass


def test_a_lock_whose_file_is_removed_is_taken_on_the_new_file(tmp_path):
    path = tmp_path / "lock"

    def remove():
        path.unlink(missing_ok=True)

    with locked(path), locked(path, remove):
        assert is_locked(path)
    assert not is_locked(path)


@pytest.fixture
def lockless(monkeypatch):
    """Make all file systems refuse locks, by a function of fcntl or by both."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def without(*names):
        for name in names:
            monkeypatch.setattr(fcntl, name, refuse)

    return without


def test_a_lock_that_saves_work_is_left_out_without_locks(tmp_path, lockless):
    lockless("flock", "lockf")

    def end():
        raise KeyboardInterrupt

    with locked(tmp_path / "lock", end), locked(tmp_path / "lock", end):
        assert not is_locked(tmp_path / "lock")


@pytest.mark.parametrize("names", [["flock"], ["lockf"]])
def test_a_directory_of_runs_without_locks_is_refused_and_left_as_it_was(
    tmp_path, lockless, names
):
    lockless(*names)
    for path in (tmp_path, tmp_path / "new"):
        with error_at("out", f"the file system of {path} has no locks"), hold(path):
            pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_other_faults_of_a_lock_are_raised(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=os.strerror(code)), locked(tmp_path / "lock"):
        pass
    with pytest.raises(OSError, match=os.strerror(code)):
        require_locks(tmp_path, "out")
