"""What reaches the terminal: tables of any width, texts of other people."""

import io

import pytest
from rich.console import Console

from modnorm.cli.console import table

HEADINGS = ("run", "points", "95 % interval", "only modular_norm", "only randopt")
ROWS = [
    ("N=10 K=1", "-5.0", "[-15.0, 5.0]", "11", "16"),
    ("N=20 K=10", "-1.0", "[-9.0, 6.0]", "7", "8"),
]


def printed(shown, width):
    output = io.StringIO()
    Console(file=output, width=width, markup=False, highlight=False).print(shown)
    return [line.rstrip() for line in output.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 40, 60, 64])
def test_a_narrow_terminal_cuts_no_figure(width):
    assert len(printed(table(HEADINGS, ROWS), 80)) == 3
    lines = printed(table(HEADINGS, ROWS), width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    letters = sorted("".join("".join(lines).split()))
    assert letters == sorted("".join("".join(map("".join, (HEADINGS, *ROWS))).split()))


def test_a_text_cannot_move_the_cursor():
    lines = printed(table(("row", "vote"), [("1", "a\x1b[2Jb")], {"vote"}), 50)
    assert "\x1b" not in "".join(lines)
    assert r"\x1b" in lines[1]
