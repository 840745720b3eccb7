"""Results as tables: sequences that are read during iteration, and HTML for notebooks."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, fields
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import DataclassInstance

_SHOWN = 20
_LONGEST = 80
"""Characters of a text that a notebook shows."""

ItemT = TypeVar("ItemT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, repr=False)
class Listing(Generic[ItemT]):
    """Results of one type. A loop fetches page after page; each loop starts from the first."""

    kind: type[ItemT]
    """Type of the results; its fields are the columns of the table."""
    fetch: Callable[[], Iterator[ItemT]]
    """Returns an iterator over the results from the first on."""

    def __repr__(self) -> str:
        return f"Listing of {self.kind.__name__}: loop over it, or call to_pandas()"

    def __iter__(self) -> Iterator[ItemT]:
        return self.fetch()

    def to_pandas(self) -> "pd.DataFrame":
        """Return a table with one line for each result. It holds all results in memory."""
        import pandas as pd  # noqa: PLC0415 - slow to import

        columns = [column.name for column in fields(self.kind) if column.repr]
        rows = [[getattr(item, name) for name in columns] for item in self]
        return pd.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        """Return the first lines as HTML for a notebook, without lists and unknown figures."""
        items = list(islice(self, _SHOWN + 1))
        shown = items[:_SHOWN]
        columns = [column for column in fields(self.kind) if column.repr]
        names = [column.name for column in columns if _is_readable(column, shown)]
        rows = [[getattr(item, name) for name in names] for item in shown]
        hidden = [column.name for column in columns if column.name not in names]
        notes = [f"The first {_SHOWN} lines."] if len(items) > _SHOWN else []
        notes += [f"Not shown: {', '.join(hidden)}."] if hidden and items else []
        notes += ["to_pandas() returns all."] if notes else []
        return html_table(names, rows, " ".join(notes))


def _is_readable(column: "Field[object]", items: Iterable[object]) -> bool:
    """Whether a column holds plain values, and not only None or its default."""
    values = [getattr(item, column.name) for item in items]
    plain = all(value is None or isinstance(value, str | int | float) for value in values)
    return plain and any(value is not None and value != column.default for value in values)


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table as HTML for notebooks: texts are escaped, colours are the notebook's own.

    Args:
        headings: Names of the columns.
        rows: The values of each line; a missing value is shown as a dash.
        note: Plain text below the table; none if empty.
    """
    import pandas as pd  # noqa: PLC0415 - slow to import

    lines = list(rows)
    texts = [any(isinstance(line[place], str) for line in lines) for place in range(len(headings))]
    cells = pd.DataFrame([list(map(_text, line)) for line in lines], columns=list(headings))
    sides = ["left" if is_text else "right" for is_text in texts] if lines else None
    table = cells.to_markdown(index=False, tablefmt="html", disable_numparse=True, colalign=sides)
    return f"{table}<p>{escape(note)}</p>" if note else table


def _text(value: object) -> str:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return "\u2013"
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\u2026"
