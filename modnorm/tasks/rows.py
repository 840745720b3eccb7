"""Rows and prompts as canonical text, and their digests."""

import hashlib
import json
from collections.abc import Iterable, Sequence

from modnorm.files import canonical_json
from modnorm.tasks.protocol import Message, Row


def encode_rows(rows: Iterable[Row]) -> list[str]:
    """Return each row as canonical JSON: sorted keys, no spaces, ASCII only."""
    return [canonical_json(row) for row in rows]


def rows_digest(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of the rows' canonical JSON, one row a line."""
    return hashlib.sha256("\n".join(encode_rows(rows)).encode()).hexdigest()


def prompts_digest(prompts: Iterable[Sequence[Message]]) -> str:
    """Return the SHA-256 of prompts: the messages of each as a JSON line of roles and texts."""
    lines = (json.dumps([[each.role, each.content] for each in prompt]) for prompt in prompts)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
