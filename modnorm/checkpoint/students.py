"""Names of students: checkpoints that a distillation trained, named by their digests."""

import re

_STUDENT = "student:"
_NAME = re.compile(f"{_STUDENT}([0-9a-f]{{64}})")


def student_name(digest: str) -> str:
    """Return the model name of a student."""
    return f"{_STUDENT}{digest}"


def student_digest(name: str) -> str | None:
    """Return the digest in the model name of a student; None for any other model."""
    match = _NAME.fullmatch(name)
    return match[1] if match else None
