"""Tables as notebooks show them."""

import math
import re

from modnorm.analysis.answers import AnswerRecord
from modnorm.analysis.listing import Listing, html_table
from modnorm.analysis.run_data import CandidateRow


def cells(html, tag="td"):
    return [cell.strip() for cell in re.findall(f"<{tag}[^>]*>(.*?)</{tag}>", html)]


def answer(**changes):
    values = {
        "candidate": 0,
        "split": "heldout",
        "row": 0,
        "prompt": None,
        "gold": None,
        "completion": "4",
        "vote": "4",
        "reward": 1.0,
        "correct": False,
        "tokens": 3,
        "truncated": False,
    }
    return AnswerRecord(**{**values, **changes})


def shown(kind, *items):
    return Listing(kind, lambda: iter(items))._repr_html_()


def test_values_are_short_and_missing_ones_are_dashes():
    html = html_table(["a"] * 6, [[0.123456, None, math.nan, "", (0.5, 1.0), "x" * 200]])
    assert cells(html) == [
        "0.1235",
        "\u2013",
        "\u2013",
        "\u2013",
        "0.5000, 1.0000",
        f"{'x' * 80}\u2026",
    ]


def test_a_column_of_texts_is_aligned_to_the_left_with_its_gaps():
    html = html_table(["text", "number"], [["a", 1], [None, 2]], "a note")
    assert re.findall("text-align: (.*?);", html) == ["right"] * 3
    assert html.index("<th>text") < html.index("right")
    assert html.endswith("<p>a note</p>")


def test_hostile_texts_are_escaped():
    html = shown(AnswerRecord, answer(completion="<script>alert(1)</script>"))
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_unknown_figures_and_lists_are_left_out_and_named():
    known = CandidateRow(index=0, seed=7, state="scored", selection_reward=0.25)
    html = shown(CandidateRow, known, CandidateRow(index=1, seed=8, state="failed"))
    assert cells(html, "th") == ["index", "seed", "state", "selection_reward"]
    assert cells(html) == ["0", "7", "scored", "0.2500", "1", "8", "failed", "\u2013"]
    assert "Not shown: stopped, heldout_metric, " in html
    assert html.endswith("to_pandas() returns all.</p>")


def test_twenty_lines_are_shown_and_it_is_said_that_there_are_more():
    whole = shown(AnswerRecord, *(answer(row=row) for row in range(20)))
    cut = shown(AnswerRecord, *(answer(row=row) for row in range(21)))
    assert whole.count("<tr>") == cut.count("<tr>") == 21
    assert "first 20" not in whole
    assert "<p>The first 20 lines." in cut
