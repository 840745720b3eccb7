"""Directories of trainings that several trainers of a host share."""

import os
import time

from modnorm.v1 import evaluation_pb2 as messages
from services.trainer.training_directories import KEPT_SECONDS, TrainingDirectories


def test_only_old_directories_are_removed_and_another_trainer_may_be_faster(tmp_path):
    directories = TrainingDirectories(tmp_path)
    present = directories.open(messages.TrainJob(seed=1))
    old = directories.open(messages.TrainJob(seed=2))
    long_ago = time.time() - KEPT_SECONDS - 1
    os.utime(old, (long_ago, long_ago))
    # Like a directory that another trainer removes after it was listed.
    (tmp_path / "gone").symlink_to(tmp_path / "absent")
    directories.remove_old()
    assert present.is_dir()
    assert not old.exists()


def test_a_training_has_one_directory_whatever_the_job(tmp_path):
    directories = TrainingDirectories(tmp_path)
    lease = messages.Lease(job_id="other", token=7)
    first = directories.open(messages.TrainJob(seed=1, dataset_digest="d"))
    assert directories.open(messages.TrainJob(seed=1, dataset_digest="d", lease=lease)) == first
    assert directories.open(messages.TrainJob(seed=1, dataset_digest="e")) != first
    directories.remove(messages.TrainJob(seed=1, dataset_digest="d"))
    assert not first.exists()
