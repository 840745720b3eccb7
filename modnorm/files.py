"""Atomic writes and bounded reads of files, and canonical JSON."""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from modnorm.errors import InvalidInputError, ModnormError, UnavailableError

MAX_YAML_BYTES = 2**18
"""Size limit of a spec, a suite file or a token file; reading this much YAML takes a second."""
_DIGEST = re.compile("[0-9a-f]{64}")
_PATH_ERRORS = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EEXIST),
        *(errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOLCK),
    }
)
"""Errors that another path does not have."""
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_DRAFT_SECONDS = 3_600.0
"""Seconds without a write after which nobody writes a draft any more."""


def write_file(path: Path, content: bytes) -> None:
    """Replace a file, as `replaced_file` does."""
    with replaced_file(path) as file:
        file.write(content)


@contextmanager
def replaced_file(path: Path, *, draft: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a draft that replaces a file at the end; after an error the old file is unchanged.

    A reader sees the old content or the new one, never a part, also after a power failure. The
    target of a link is replaced, not the link. A special file such as `/dev/null` is written in
    place.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as special:
            yield special
        return
    target = path.resolve()  # replace the target of a link
    draft = draft or partial_path(target)
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        is_unnamed = error.filename is None and error.errno in _WRITE_ERRORS  # one of `write`
        if is_unnamed or error.filename == str(draft):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # it would hide the first error
            draft.unlink(missing_ok=True)


def read_text(path: Path, *, most: int) -> str:
    """Return the UTF-8 text of a regular file."""
    kind = path.stat().st_mode
    if stat.S_ISDIR(kind):
        raise ValueError("it is a directory, not a file; name a file inside it")
    if not stat.S_ISREG(kind):
        raise ValueError("it is not a regular file; save the content as a regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes, the limit for such a file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"it is not UTF-8 text: byte {error.start + 1} is no character"
        ) from error


def existing_path(name: str) -> Path | None:
    """Return an absolute path with links resolved; None if nothing exists there."""
    try:
        path = Path(name).expanduser().resolve()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, no such home, a zero byte
        return None


def lies_under(path: Path, folders: Sequence[Path]) -> bool:
    """Return whether a path without links is in one of some folders."""
    return any(path.is_relative_to(folder.resolve()) for folder in folders)


def read_fault(error: Exception) -> str:
    """Return why a file cannot be read; the caller names the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def partial_path(path: Path) -> Path:
    """Return the temporary path of a file that is being written; a kill may leave it behind."""
    return path.with_name(f".{path.name}.part")


DRAFTS = f".*.{'[0-9a-f]' * 32}.part"
"""Pattern of the names that `own_draft` gives."""


def own_draft(path: Path) -> Path:
    """Return a temporary path of a file that several processes may write at the same time."""
    return path.with_name(f".{path.name}.{uuid4().hex}.part")


def remove_old_drafts(drafts: Iterable[Path]) -> None:
    """Remove files and directories that killed processes left an hour ago or earlier."""
    for draft in list(drafts):
        with suppress(OSError):  # another process removes it too
            written = max(path.stat().st_mtime for path in (draft, *draft.rglob("*")))
            if time.time() - written > _DRAFT_SECONDS:
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink()


def canonical_json(content: object) -> str:
    """Return content as JSON with sorted keys, no blanks and ASCII only."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class CanonicalDocument:
    """A document; two are equal if their canonical JSON is equal."""

    canonical: str
    """The document as JSON with sorted keys and no blanks."""

    def to_json(self) -> str:
        """Return the canonical JSON, whose SHA-256 is the digest."""
        return self.canonical

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()


def json_digest(content: object) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def is_digest(text: str) -> bool:
    """Return whether a text is a SHA-256 in the form of `json_digest`."""
    return _DIGEST.fullmatch(text) is not None


def encode_json(document: Mapping[str, object]) -> bytes:
    """Return a document as JSON with sorted keys, one value a line."""
    text = json.dumps(document, sort_keys=True, indent=2, allow_nan=False)
    return f"{text}\n".encode()


def check_writable(out: Path) -> None:
    """Refuse an output file that cannot be written, before minutes of work."""
    if out.is_fifo():  # its reader would take the end of this check for the end of the output
        return
    existed = out.exists()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("a").close()
        if not existed:
            out.resolve().unlink()  # not a link that leads to it
    except OSError as error:
        raise write_fault(out, error) from error


def write_fault(path: Path, error: OSError, field: str = "out") -> ModnormError:
    """Return the error of an output path that cannot be written."""
    fault = file_fault(error)
    is_named = str(error.filename) == str(path)  # it may be bytes or a descriptor
    reason = error.strerror if is_named else fault.message
    return type(fault)(f"cannot write {path}: {reason}", field=field, remedy=fault.remedy)


def file_fault(error: OSError) -> ModnormError:
    """Return the caller's error for a path that cannot be used, else the error of a disk."""
    reason = error.strerror or str(error) or type(error).__name__
    message = reason if error.filename is None else f"{error.filename}: {reason}"
    if error.errno in _PATH_ERRORS:
        return InvalidInputError(message, remedy="name another path, or make it writable")
    return UnavailableError(message, remedy="remove the cause, then repeat the command")
