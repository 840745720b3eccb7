"""The students of a host, by the digest of their checkpoints.

    ROOT/<digest>/               a complete student, which never changes
    ROOT/uploads/<digest>/       the files of a student that is not complete yet
    ROOT/drafts/<digest>/        files of it that are being written
    ROOT/removed/                removed students whose files are not deleted yet
    ROOT/locks/<digest>          locked by the process that downloads the student

A file is written as a draft, synced and renamed. A killed process leaves its draft, which must not
become a file of the student. A student is complete once its digest has been checked.
"""

import hashlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

from modnorm.checkpoint.checkpoint_files import file_digest
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError, NotFoundError, PreconditionError, UnavailableError
from modnorm.files import is_digest, replaced_file

_FILE = re.compile(r"((adapter|additional_chat_templates)/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
ABANDONED_SECONDS = 14 * 86_400.0
"""Age of an untouched upload, or of a student that nothing names, that is removed: its
distillation was cancelled, for example."""
MAX_FILES = 2_000
"""Largest number of files; a model of a trillion parameters has a few hundred."""


@dataclass(frozen=True, slots=True)
class StudentFile:
    """A file of a student, which is a checkpoint that a distillation trained."""

    name: str
    """Relative to its directory; `adapter/NAME` for a file of the adapter."""
    size: int
    sha256: str


class Students:
    """A directory of students, safe to share between threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: str) -> Path | None:
        """Return the directory of a complete student; None without it."""
        _check_digest(digest)
        directory = self.root / digest
        return directory if directory.is_dir() else None

    def require(self, digest: str) -> Path:
        """Return the directory of a complete student.

        Raises:
            NotFoundError: there is no such student.
        """
        directory = self.path(digest)
        if directory is None:
            raise NotFoundError(f"there is no student {digest[:64]!r}", field="digest")
        return directory

    def files(self, digest: str) -> tuple[StudentFile, ...]:
        """Return the files of a complete student, sorted by name.

        Raises:
            NotFoundError: there is no such student.
        """
        return list_files(self.require(digest))

    def write(self, digest: str, file: StudentFile, chunks: Iterable[bytes]) -> None:
        """Store one file of an incomplete student; do nothing if the file is stored already.

        Raises:
            InvalidInputError: the name is not allowed, or the content differs from size or digest.
            UnavailableError: the disk is full, or another process completes the student.
        """
        _check_digest(digest)
        _check_name(file.name)
        place = self._upload(digest) / file.name
        with _outages(self.root):
            if self.path(digest) is not None or (place.is_file() and _is(place, file)):
                return
            for folder in (place.parent, self._drafts(digest)):
                folder.mkdir(parents=True, exist_ok=True)
            stored = {path for path in self._upload(digest).rglob("*") if path.is_file()}
            if len(stored | {place}) > MAX_FILES:
                raise InvalidInputError("a student has too many files", field="file.name")
            _write(place, self._drafts(digest), file, chunks)

    def complete(self, digest: str) -> Path:
        """Check the files of a student and make it complete; repeated calls change nothing.

        Raises:
            PreconditionError: its files are missing or have another digest.
            UnavailableError: the directory cannot be written.
        """
        upload, target = self._upload(digest), self.root / digest
        if self.path(digest) is not None:
            return target
        with _outages(self.root):
            try:
                _check_checkpoint(upload, digest)
                upload.rename(target)
            except (OSError, PreconditionError):
                if not target.is_dir():  # another process may have completed it
                    raise
                shutil.rmtree(upload, ignore_errors=True)
        shutil.rmtree(self._drafts(digest), ignore_errors=True)
        return target

    def remove(self, digest: str) -> None:
        """Remove a complete student, whole or not at all; do nothing without it.

        This takes no time: `clean_up` deletes the files.

        Raises:
            UnavailableError: the directory cannot be written.
        """
        directory = self.path(digest)
        if directory is not None:
            with _outages(self.root):
                self._removed.mkdir(parents=True, exist_ok=True)
                directory.rename(self._removed / uuid4().hex)

    def old(self) -> Iterator[str]:
        """Yield the digests of complete students that were stored long ago."""
        limit = time.time() - ABANDONED_SECONDS
        for directory in self.root.glob("*"):
            # Another process may remove it.
            with suppress(FileNotFoundError):
                if is_digest(directory.name) and directory.stat().st_mtime < limit:
                    yield directory.name

    def clean_up(self) -> None:
        """Delete the files of removed students, and uploads that nobody continues.

        Raises:
            UnavailableError: the directory cannot be written.
        """
        limit = time.time() - ABANDONED_SECONDS
        uploads = (*self.root.glob("uploads/*"), *self.root.glob("drafts/*"))
        for directory in (*self._removed.glob("*"), *uploads):
            # Another process may delete it too.
            with _outages(self.root), suppress(FileNotFoundError):
                if directory.parent == self._removed or directory.stat().st_mtime < limit:
                    shutil.rmtree(directory)

    def lock_file(self, digest: str) -> Path:
        """Return the file that a process locks while it downloads a student."""
        _check_digest(digest)
        path = self.root / "locks" / digest
        with _outages(self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def _removed(self) -> Path:
        return self.root / "removed"

    def _upload(self, digest: str) -> Path:
        return self.root / "uploads" / digest

    def _drafts(self, digest: str) -> Path:
        return self.root / "drafts" / digest


def list_files(directory: Path) -> tuple[StudentFile, ...]:
    """Return the files of a checkpoint's directory that a student can have, sorted by name.

    Hidden files and files with other names, which a base may have, decide no answer.
    """
    named = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*")}
    return tuple(
        StudentFile(name, path.stat().st_size, file_digest(path))
        for name, path in sorted(named.items())
        if path.is_file() and _FILE.fullmatch(name)
    )


def _check_checkpoint(directory: Path, digest: str) -> None:
    try:
        actual = resolve_checkpoint(str(directory.resolve())).digest
    except InvalidInputError as error:
        raise PreconditionError(
            f"the files of student {digest[:12]} are not complete: {error.message}",
            field="digest",
            remedy="upload all files first",
        ) from error
    if actual != digest:
        raise PreconditionError(
            f"the files of student {digest[:12]} have digest {actual[:12]}",
            field="digest",
            remedy="upload the files of this student only",
        )


def _write(place: Path, drafts: Path, file: StudentFile, chunks: Iterable[bytes]) -> None:
    """Write a file atomically if its content is as announced."""
    with replaced_file(place, draft=drafts / uuid4().hex) as draft:
        _copy(draft, file, chunks)


def _copy(target: IO[bytes], file: StudentFile, chunks: Iterable[bytes]) -> None:
    content, size = hashlib.sha256(), 0
    for chunk in chunks:
        size += len(chunk)
        if size > file.size:
            break
        content.update(chunk)
        target.write(chunk)
    if size != file.size or content.hexdigest() != file.sha256:
        raise InvalidInputError(
            f"the content of {file.name} differs from its size or its digest",
            field="file.sha256",
            remedy="send the file again",
        )


def _is(place: Path, file: StudentFile) -> bool:
    return place.stat().st_size == file.size and file_digest(place) == file.sha256


def _check_digest(digest: str) -> None:
    if not is_digest(digest):
        raise InvalidInputError(
            f"{digest[:64]!r} is not a digest",
            field="digest",
            remedy="give 64 hexadecimal digits",
        )


def _check_name(name: str) -> None:
    if not _FILE.fullmatch(name):
        raise InvalidInputError(
            f"a student cannot have a file {name[:200]!r}",
            field="file.name",
            remedy="use plain file names, below adapter/ those of the adapter",
        )


@contextmanager
def _outages(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"cannot write below {root}: {error.strerror}",
            field="student_dir",
            remedy="free disk space, allow writing there, or set MODNORM_STUDENT_DIR",
        ) from error
