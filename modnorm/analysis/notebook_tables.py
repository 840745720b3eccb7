"""Tables of results as HTML for notebooks. Texts are escaped, colours are the notebook's own."""

import math
from collections.abc import Iterable, Sequence
from html import escape

_LONGEST = 80
"""Characters of a text that are shown."""


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table with a note below it.

    Args:
        headings: Names of the columns.
        rows: The values of each line; a missing value is shown as a dash.
        note: Plain text; none if empty.
    """
    lines = list(rows)
    sides = [
        "left" if any(isinstance(line[place], str) for line in lines) else "right"
        for place in range(len(headings))
    ]
    head = _cells("th", headings, sides)
    body = "".join(f"<tr>{_cells('td', line, sides)}</tr>" for line in lines)
    below = f"<p>{escape(note)}</p>" if note else ""
    return (
        f'<table class="dataframe"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"{below}"
    )


def _cells(tag: str, values: Iterable[object], sides: Iterable[str]) -> str:
    """Return cells, each aligned to its side: texts to the left, numbers to the right."""
    return "".join(
        f'<{tag} style="text-align: {side}">{escape(_text(value))}</{tag}>'
        for value, side in zip(values, sides, strict=True)
    )


def _text(value: object) -> str:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return "\u2013"
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\u2026"
