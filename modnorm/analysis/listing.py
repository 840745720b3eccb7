"""Sequences of results that are read page by page, during iteration."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import DataclassInstance

_SHOWN = 20

ItemT = TypeVar("ItemT", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class Listing(Generic[ItemT]):
    """Results of one type. A loop fetches page after page; each loop starts from the first."""

    kind: type[ItemT]
    """Type of the results; its fields are the columns of the table."""
    fetch: Callable[[], Iterator[ItemT]]
    """Returns an iterator over the results from the first on."""

    def __iter__(self) -> Iterator[ItemT]:
        return self.fetch()

    def to_pandas(self) -> "pd.DataFrame":
        """Return a table with one line for each result. It holds all results in memory."""
        return _table(self.kind, self)

    def _repr_html_(self) -> str:
        """Return the first lines as HTML for a notebook; texts are escaped."""
        return _table(self.kind, islice(self, _SHOWN)).to_html()


@dataclass(frozen=True, slots=True)
class AsyncListing(Generic[ItemT]):
    """Results of one type. An `async for` fetches page after page, each from the first."""

    kind: type[ItemT]
    """Type of the results; its fields are the columns of the table."""
    fetch: Callable[[], AsyncIterator[ItemT]]
    """Returns an iterator over the results from the first on."""

    def __aiter__(self) -> AsyncIterator[ItemT]:
        return self.fetch()

    async def to_pandas(self) -> "pd.DataFrame":
        """Return a table with one line for each result. It holds all results in memory."""
        return _table(self.kind, [item async for item in self])


def _table(kind: type[ItemT], items: Iterable[ItemT]) -> "pd.DataFrame":
    import pandas as pd  # noqa: PLC0415 - slow to import

    columns = [column.name for column in fields(kind) if column.repr]
    rows = [[getattr(item, name) for name in columns] for item in items]
    return pd.DataFrame(rows, columns=columns)
