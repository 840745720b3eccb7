"""Results as sequences that are read during iteration, and as tables."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

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
        """Return the first lines as HTML for a notebook."""
        first = list(islice(self, _SHOWN))
        table = Listing(self.kind, lambda: iter(first)).to_pandas()
        return f"{table.to_html(notebook=True)}<p>to_pandas() returns all lines.</p>"
