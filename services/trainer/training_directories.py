"""The directories of unfinished trainings, by content: a training goes on under any job id."""

import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from modnorm.files import encode_json
from modnorm.locks import UNSUPPORTED
from modnorm.v1 import evaluation_pb2 as messages

KEPT_SECONDS = 14 * 86_400.0
"""Age of an untouched training that is removed: its distillation was cancelled, for example."""
_NO_LOCKS = UNSUPPORTED | {errno.EBADF}
"""Errors of file systems that lock no directories. NFS locks only what is open for writing."""


class TrainingDirectories:
    """A folder with a directory for each unfinished training, shared by the trainers of a host.

    Trainers of two distillations with equal trainings share a directory. Each holds a shared lock
    of it, and a directory is removed only under an exclusive lock.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def open(self, job: messages.TrainJob) -> Iterator[Path]:
        """Yield the directory of a job, created if absent and kept inside the context."""
        directory = self._root / _key(job)
        descriptor = _lock_shared(directory)
        try:
            directory.touch()
            yield directory
        finally:
            os.close(descriptor)

    def remove(self, job: messages.TrainJob) -> None:
        """Remove the directory of a reported or cancelled job, unless a trainer uses it."""
        _remove_unused(self._root / _key(job))

    def remove_old(self) -> None:
        """Remove directories that no training used for a long time.

        Another trainer may remove one at the same time.
        """
        limit = time.time() - KEPT_SECONDS
        for directory in self._root.glob("*"):
            with suppress(FileNotFoundError):
                if directory.stat().st_mtime < limit:
                    _remove_unused(directory)


def _lock_shared(directory: Path) -> int:
    """Make a directory; return a descriptor that holds its shared lock."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # removed meanwhile
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                _lock(descriptor, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(descriptor), directory.stat()):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def _lock(descriptor: int, operation: int) -> None:
    """Lock a directory; a file system without such locks excludes nobody."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _remove_unused(directory: Path) -> None:
    """Remove a directory unless it is locked or gone."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(descriptor)


def _key(job: messages.TrainJob) -> str:
    """Return a digest of everything that decides the student."""
    settings = job.settings.SerializeToString(deterministic=True).hex()
    content = {
        "model_digest": job.model_digest,
        "dataset_digest": job.dataset_digest,
        "settings": settings,
        "seed": job.seed,
    }
    return hashlib.sha256(encode_json(content)).hexdigest()
