"""Messages repeat no long value."""

import pytest

from modnorm.errors import LONGEST, InvalidInputError

WORDS = "two words " * 100


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("x" * 5000, "x" * LONGEST + "..."),
        (f"no method {WORDS!r} here", f"no method '{WORDS[: LONGEST - 1]}... here"),
        (f"it's long: {WORDS}, isn't it", f"it's long: {WORDS}, isn't it"),
        ("x" * LONGEST, "x" * LONGEST),
    ],
)
def test_a_long_value_is_cut_and_a_long_sentence_is_not(message, kept):
    error = InvalidInputError(message, field="f" * 500, remedy=message)
    assert (error.message, error.remedy) == (kept, kept)
    assert error.field == "f" * LONGEST + "..."
