"""Rows as canonical text, and their digest."""

import hashlib
import json
from collections.abc import Iterable

from modnorm.tasks.protocol import Row


def encode_rows(rows: Iterable[Row]) -> list[str]:
    """Return each row as canonical JSON: sorted keys, no spaces, ASCII only."""
    return [
        json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False) for row in rows
    ]


def rows_digest(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of the rows' canonical JSON, one row a line."""
    return hashlib.sha256("\n".join(encode_rows(rows)).encode()).hexdigest()
