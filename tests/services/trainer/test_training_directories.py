"""Directories of trainings that several trainers of a host share."""

import errno
import fcntl
import os
import time

import pytest

from modnorm.services.trainer.training_directories import KEPT_SECONDS, TrainingDirectories
from modnorm.v1 import evaluation_pb2 as messages

LONG_AGO = time.time() - KEPT_SECONDS - 1


def test_only_old_directories_are_removed_and_another_trainer_may_be_faster(tmp_path):
    directories = TrainingDirectories(tmp_path)
    with directories.open(messages.TrainJob(seed=1)) as present:
        pass
    with directories.open(messages.TrainJob(seed=2)) as old:
        pass
    os.utime(old, (LONG_AGO, LONG_AGO))
    # Like a directory that another trainer removes after it was listed.
    (tmp_path / "gone").symlink_to(tmp_path / "absent")
    directories.remove_old()
    assert present.is_dir()
    assert not old.exists()


def test_a_training_has_one_directory_whatever_the_job(tmp_path):
    directories = TrainingDirectories(tmp_path)
    lease = messages.Lease(job_id="other", token=7)
    with directories.open(messages.TrainJob(seed=1, dataset_digest="d")) as first:
        pass
    with directories.open(messages.TrainJob(seed=1, dataset_digest="d", lease=lease)) as same:
        assert same == first
    with directories.open(messages.TrainJob(seed=1, dataset_digest="e")) as other:
        assert other != first
    directories.remove(messages.TrainJob(seed=1, dataset_digest="d"))
    assert not first.exists()


def test_a_directory_that_another_trainer_uses_stays(tmp_path):
    """The distillation of an equal training was cancelled, or has its student."""
    ours, theirs = TrainingDirectories(tmp_path), TrainingDirectories(tmp_path)
    job = messages.TrainJob(seed=1)
    with theirs.open(job):
        with ours.open(job) as directory:
            (directory / "checkpoint").touch()
        ours.remove(job)
        os.utime(directory, (LONG_AGO, LONG_AGO))
        ours.remove_old()
        assert (directory / "checkpoint").exists()
    theirs.remove(job)
    assert not directory.exists()


@pytest.mark.parametrize("missing", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF])
def test_a_file_system_without_locks_holds_trainings_too(tmp_path, monkeypatch, missing):
    def refuse(*_):
        raise OSError(missing, os.strerror(missing))

    monkeypatch.setattr(fcntl, "flock", refuse)
    directories, job = TrainingDirectories(tmp_path), messages.TrainJob(seed=1)
    with directories.open(job) as directory:
        assert directory.is_dir()
    directories.remove(job)
    assert not directory.exists()


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_directory_that_is_removed_before_its_lock_is_made_again(
    tmp_path, monkeypatch, is_made_again
):
    lock = fcntl.flock
    removed = list[str]()

    def remove_first(descriptor, operation):
        if not removed:
            (directory,) = tmp_path.iterdir()
            removed.append(directory.name)
            # Renamed, so that the new directory cannot have its inode.
            directory.rename(tmp_path.parent / "removed")
            if is_made_again:
                directory.mkdir()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    directories = TrainingDirectories(tmp_path)
    with directories.open(messages.TrainJob(seed=1)) as directory:
        assert removed == [directory.name]
        directories.remove(messages.TrainJob(seed=1))
        assert directory.is_dir()
