"""Tables on terminals of any width."""

import io

import pytest
from rich.console import Console

from modnorm.cli.console import table
from modnorm.cli.records_output import text_table

HEADINGS = ("run", "points", "95 % interval", "only modular_norm", "only randopt")
ROWS = [
    ("N=10 K=1", "-5.0", "[-15.0, 5.0]", "11", "16"),
    ("N=20 K=10", "-1.0", "[-9.0, 6.0]", "7", "8"),
]


def printed(shown, width):
    output = io.StringIO()
    Console(file=output, width=width, markup=False, highlight=False).print(shown)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_a_wide_terminal_shows_one_block():
    lines = printed(table(HEADINGS, ROWS), 80)
    assert len(lines) == 3
    assert lines[0].split("  ")[0] == "run"


@pytest.mark.parametrize("width", [30, 40, 60, 64])
def test_a_narrow_terminal_shows_every_cell_whole(width):
    lines = printed(table(HEADINGS, ROWS), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    for cell in (*HEADINGS, *ROWS[0], *ROWS[1]):
        assert cell in text
    blocks = text.split("\n\n")
    assert len(blocks) > 1
    assert all(block.splitlines()[2].startswith("N=20 K=10") for block in blocks)


def test_a_cell_wider_than_the_terminal_is_wrapped():
    lines = printed(table(("run", "digest"), [("a", "0123456789" * 3)]), 20)
    assert "".join(line[3:].strip() for line in lines[1:]) == "0123456789" * 3


def test_a_text_is_cut_before_figures_are_folded():
    rows = [("5", "1.1000", "so 65 - 9 = 56, which is right, and so on" * 2)]
    lines = printed(text_table(("candidate", "reward", "completion"), rows, {"completion"}), 50)
    assert len(lines) == 2
    assert lines[1].startswith("5")
    assert "1.1000" in lines[1]
    assert lines[1].endswith("…")


def test_a_text_cannot_move_the_cursor():
    lines = printed(text_table(("row", "vote"), [("1", "a\x1b[2Jb")], {"vote"}), 50)
    assert "\x1b" not in "".join(lines)
    assert r"\x1b" in lines[1]
