"""Errors of this project that a test expects."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from modnorm.errors import InvalidInputError, ModnormError


@contextmanager
def error_at(
    field: str | None, match: str | None = None, *, kind: type[ModnormError] = InvalidInputError
) -> Iterator[pytest.ExceptionInfo[ModnormError]]:
    """Expect an error that names a field."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert caught.value.field == field
