"""A table that a narrow terminal shows whole, in several blocks of columns."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from typing_extensions import override

_GAP = 2
"""Spaces between two columns."""
_TEXT_WIDTH = 20
"""Least width of a column that may be cut."""


class FoldedTable(Table):
    """A table without lines. Columns that do not fit the width go to a further block.

    Each block repeats the first column. A column without `no_wrap` holds texts that may be cut, so
    it needs only a part of its width.
    """

    def __init__(self) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold")

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [_width(column, console, options) + _GAP for column in self.columns]
        if sum(widths) - _GAP <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for index, block in enumerate(self._blocks(widths, options.max_width + _GAP)):
            if index:
                yield ""
            yield _part(block)

    def _blocks(self, widths: list[int], most: int) -> Iterator[list[Column]]:
        """Yield the columns of each block, the first column included."""
        first, *others = self.columns
        block, taken = [first], widths[0]
        for column, width in zip(others, widths[1:], strict=True):
            if len(block) > 1 and taken + width > most:
                yield block
                block, taken = [first], widths[0]
            block.append(column)
            taken += width
        yield block


def _width(column: Column, console: Console, options: ConsoleOptions) -> int:
    """Return the width of the widest cell; at most `_TEXT_WIDTH` if cells may be cut."""
    endless = options.update(max_width=10_000)
    cells = (column.header, *column.cells)
    width = max(Measurement.get(console, endless, cell).maximum for cell in cells)
    return width if column.no_wrap else min(width, _TEXT_WIDTH)


def _part(columns: list[Column]) -> Table:
    part = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        part.add_column(column.header, justify=column.justify, overflow="fold")
    for cells in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*cells)
    return part
