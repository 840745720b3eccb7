"""Sequences of results that are read page by page, during iteration."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from modnorm.analysis.notebook_tables import html_table

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import DataclassInstance

_SHOWN = 20

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
        return html_table(names, rows, _note(len(items), [each.name for each in columns], names))


def _is_readable(column: "Field[object]", items: Iterable[object]) -> bool:
    """Whether a column holds plain values, and not only None or its default."""
    values = [getattr(item, column.name) for item in items]
    plain = all(value is None or isinstance(value, str | int | float) for value in values)
    return plain and any(value is not None and value != column.default for value in values)


def _note(count: int, columns: Sequence[str], shown: Sequence[str]) -> str:
    """Name the columns that a notebook's table omits; empty if it shows everything."""
    hidden = [name for name in columns if name not in shown]
    notes = [f"The first {_SHOWN} lines."] if count > _SHOWN else []
    notes += [f"Not shown: {', '.join(hidden)}."] if hidden and count else []
    return " ".join([*notes, "to_pandas() returns all."]) if notes else ""
