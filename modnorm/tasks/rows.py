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
    return hashlib.sha256("\n".join(map(_encode_prompt, prompts)).encode()).hexdigest()


def prompt_digests(prompts: Iterable[Sequence[Message]]) -> tuple[str, ...]:
    """Return the first 16 digits of the SHA-256 of each prompt."""
    return tuple(
        hashlib.sha256(_encode_prompt(prompt).encode()).hexdigest()[:16] for prompt in prompts
    )


def _encode_prompt(prompt: Sequence[Message]) -> str:
    return json.dumps([[each.role, each.content] for each in prompt])
