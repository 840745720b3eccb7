import io

import pytest
from rich.console import Console

from modnorm.cli.counts import counting


@pytest.fixture
def shown(monkeypatch):
    """Count five items, calibrated and then measured; returns what was shown."""

    def show(*, terminal=False, quiet=False, apart=0.0, first=0):
        monkeypatch.setattr("modnorm.cli.counts._LINE_SECONDS", apart)
        text = io.StringIO()
        console = Console(file=text, force_terminal=terminal, width=80, highlight=False)
        with counting(console, quiet=quiet) as counts:
            for done in range(first, 6):
                counts.show("measuring", done, 5)
            counts.note("[x] measured")
        return text.getvalue()

    return show


def test_without_a_terminal_lines_tell_how_far_it_is(shown):
    lines = shown().splitlines()
    assert lines[0] == "measuring, 0/5"
    assert lines[1].startswith("measuring, 1/5, ")
    assert "ETA" in lines[1]
    assert lines[5].startswith("measuring, 5/5, ")
    assert lines[6:] == ["[x] measured"]


def test_lines_are_apart_but_for_the_first_and_the_last_of_a_phase(shown):
    starts = [line.split(", ")[:2] for line in shown(apart=60.0).splitlines()]
    assert starts == [["measuring", "0/5"], ["measuring", "5/5"], ["[x] measured"]]


def test_what_was_there_at_the_start_took_no_time(shown):
    assert shown(first=4, apart=60.0).splitlines()[0] == "measuring, 4/5"


def test_a_terminal_has_a_bar_and_remarks(shown):
    text = shown(terminal=True)
    assert "5/5" in text
    assert "[x] measured" in text


def test_quiet_shows_nothing(shown):
    assert shown(quiet=True) == ""
