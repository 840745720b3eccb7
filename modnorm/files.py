"""Files that a reader finds whole, and JSON that is the same bytes for the same data."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

MAX_YAML_BYTES = 2**18
"""Of a spec, a suite file or a file of tokens: as much YAML takes a second to read."""


def write_file(path: Path, content: bytes) -> None:
    """Replace a file at once: a reader finds the old content or the new, never a part.

    What is no file, `/dev/null` for instance, is written to and stays what it is; of a link the
    file is replaced that it leads to.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    path = path.resolve()  # a part beside a link would take the link's place
    part = part_of(path)
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read_text(path: Path, *, most: int) -> str:
    """Return the UTF-8 text of a file that a user names.

    Args:
        path: A regular file: a device or a pipe may have no end.
        most: Bytes that it may have.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no regular file, is larger, or is no UTF-8.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file; save the content as one")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes, which no such file needs")
    return content.decode("utf-8")


def part_of(path: Path) -> Path:
    """Return where a file is written before it is whole: what a kill leaves of it."""
    return path.with_name(f".{path.name}.part")


def encode_json(document: Mapping[str, object]) -> bytes:
    """Return a document as JSON with sorted keys, one value a line."""
    text = json.dumps(document, sort_keys=True, indent=2, allow_nan=False)
    return f"{text}\n".encode()
