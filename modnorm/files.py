"""Files that a reader finds whole, and JSON that is the same bytes for the same data."""

import json
import os
from collections.abc import Mapping
from pathlib import Path


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


def part_of(path: Path) -> Path:
    """Return where a file is written before it is whole: what a kill leaves of it."""
    return path.with_name(f".{path.name}.part")


def encode_json(document: Mapping[str, object]) -> bytes:
    """Return a document as JSON with sorted keys, one value a line."""
    text = json.dumps(document, sort_keys=True, indent=2, allow_nan=False)
    return f"{text}\n".encode()
