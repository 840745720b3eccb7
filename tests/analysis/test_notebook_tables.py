"""Tables as notebooks show them."""

from modnorm.analysis.answers import AnswerRecord
from modnorm.analysis.listing import Listing


def shown(count, completion="4"):
    answers = [
        AnswerRecord(0, "heldout", row, None, None, completion, "4", 1.0, False, 3, False)
        for row in range(count)
    ]
    return Listing(AnswerRecord, lambda: iter(answers))._repr_html_()


def test_hostile_texts_are_escaped():
    html = shown(1, "<script>alert(1)</script>")
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_the_first_twenty_lines_are_shown():
    assert shown(20).count("<tr>") == shown(21).count("<tr>") == 20
