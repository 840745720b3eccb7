"""Hints for misspelt names."""

from modnorm.hints import did_you_mean, nearest, one_of


def test_the_nearest_name_comes_first():
    names = ("countdown", "gsm8k", "math500")
    assert nearest("Coutdown", names) == "countdown"
    assert one_of("coutdown", names) == "did you mean countdown? one of countdown, gsm8k, math500"


def test_no_name_is_guessed_from_afar():
    assert did_you_mean("chess", ("countdown", "gsm8k")) is None
    assert one_of("chess", ("countdown", "gsm8k")) == "one of countdown, gsm8k"
    assert nearest("x" * 1_000_000, ("countdown",)) is None
