"""Messages repeat no long value, and hints name the nearest valid name."""

import pytest

from modnorm.errors import LONGEST, InvalidInputError
from modnorm.hints import did_you_mean, nearest, one_of

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


def test_the_nearest_name_comes_first():
    names = ("countdown", "gsm8k", "math500")
    assert nearest("Coutdown", names) == "countdown"
    assert one_of("coutdown", names) == "did you mean countdown? one of countdown, gsm8k, math500"


def test_no_name_is_guessed_from_afar():
    assert did_you_mean("chess", ("countdown", "gsm8k")) is None
    assert one_of("chess", ("countdown", "gsm8k")) == "one of countdown, gsm8k"
    assert nearest("x" * 1_000_000, ("countdown",)) is None
