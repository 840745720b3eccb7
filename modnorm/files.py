"""Atomic writes and bounded reads of files, and deterministic JSON."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from modnorm.errors import InvalidInputError

MAX_YAML_BYTES = 2**18
"""Size limit of a spec, a suite file or a token file; reading this much YAML takes a second."""


def write_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new one, never a part.

    The target of a link is replaced, not the link. A special file such as `/dev/null` is written
    in place.

    Raises:
        OSError: the file cannot be written.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve()  # replace the target of a link
    part = partial_path(path)
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read_text(path: Path, *, most: int) -> str:
    """Return the UTF-8 text of a regular file.

    Args:
        path: The file; devices and pipes are refused, since they may not end.
        most: Largest number of bytes.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not regular, larger, or not UTF-8.
    """
    if not stat.S_ISREG(path.stat().st_mode):
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


def partial_path(path: Path) -> Path:
    """Return the temporary path of a file that is being written; a kill may leave it behind."""
    return path.with_name(f".{path.name}.part")


def encode_json(document: Mapping[str, object]) -> bytes:
    """Return a document as JSON with sorted keys, one value a line."""
    text = json.dumps(document, sort_keys=True, indent=2, allow_nan=False)
    return f"{text}\n".encode()


def check_writable(out: Path) -> None:
    """Refuse an output file that cannot be written, before minutes of work.

    Raises:
        InvalidInputError: it cannot be written.
    """
    existed = out.exists()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.open("a").close()
        if not existed:
            out.unlink()
    except OSError as error:
        raise InvalidInputError(f"cannot write {out}: {error.strerror}", field="out") from error
