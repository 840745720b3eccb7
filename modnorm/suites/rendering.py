"""Tables as built, with the paper's figures beside ours, and as Markdown and JSON."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from modnorm.errors import InvalidInputError
from modnorm.suites.suite_file import Labels, Table


@dataclass(frozen=True, slots=True)
class Printed:
    """The paper's number."""

    mean: float
    sd: float | None
    """None if the paper prints only a mean."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a table."""

    mean: float | None
    sd: float | None
    """Sample SD over the seeds; None with fewer than two."""
    by_seed: Mapping[int, float]
    """The values of the finished cells."""
    seeds: int
    """Number of seeds, finished or not, that can have a value."""
    paper: Printed | None

    @property
    def complete_mean(self) -> float:
        """The mean once the cells of all seeds are finished; NaN before."""
        is_complete = len(self.by_seed) == self.seeds
        return math.nan if self.mean is None or not is_complete else self.mean


@dataclass(frozen=True, slots=True)
class TableRow:
    labels: Labels
    figures: tuple[Figure, ...]
    """By column."""


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """A table with the figures of all finished cells."""

    title: str
    source: str
    paper: str | None
    """Place of the paper's figures; None if the paper has no such table."""
    headings: Labels
    """Headings of the row labels."""
    columns: Labels
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    beside: "tuple[BuiltTable, ...]" = ()
    """Tables of additional figures that the plot shows."""
    digits: int = 2

    @property
    def missing(self) -> int:
        """Number of figures that lack the value of a seed."""
        return sum(len(one.by_seed) < one.seeds for row in self.rows for one in row.figures)

    @property
    def by_labels(self) -> Mapping[Labels, Mapping[str, Figure]]:
        """The figures by the labels of their row and by column."""
        return {row.labels: dict(zip(self.columns, row.figures, strict=True)) for row in self.rows}


def fill(  # noqa: PLR0913 - the parts of a table; most are optional
    spec: Table,
    values: pd.DataFrame,
    rows: Sequence[str],
    field: str,
    *,
    axes: Sequence[str] = ("column",),
    columns: Mapping[Labels, str] | None = None,
    headings: Sequence[str] | None = None,
    printed_at: Callable[[Labels], Labels] = lambda labels: labels,
) -> BuiltTable:
    """Arrange values in rows and columns."""
    found: dict[Labels, dict[Labels, dict[int, float]]] = {}
    labels = values[[*rows, *axes]].astype(str).itertuples(index=False, name=None)
    for label, seed, value in zip(labels, values["seed"], values["value"], strict=True):
        row, column = label[: len(rows)], label[len(rows) :]
        found.setdefault(row, {}).setdefault(column, {})[seed] = value
    if columns is None:
        columns = {column: column[0] for row in found.values() for column in row}
    table_rows = []
    for row, by_column in found.items():
        papers = [_printed(spec, field, printed_at((*row, *column))) for column in columns]
        figures = map(_figure, (by_column.get(column, {}) for column in columns), papers)
        table_rows.append(TableRow(row, tuple(figures)))
    return BuiltTable(
        title=spec.title,
        source=spec.source,
        paper=spec.paper.source if spec.paper else None,
        headings=tuple(rows if headings is None else headings),
        columns=tuple(columns.values()),
        rows=tuple(table_rows),
        digits=spec.digits,
    )


def _figure(by_seed: Mapping[int, float], paper: Printed | None) -> Figure:
    """Return a figure from its values, which are NaN where a cell is not finished."""
    known = {seed: value for seed, value in sorted(by_seed.items()) if not math.isnan(value)}
    return Figure(
        mean=statistics.fmean(known.values()) if known else None,
        sd=statistics.stdev(known.values()) if len(known) > 1 else None,
        by_seed=known,
        seeds=len(by_seed),
        paper=paper,
    )


def _printed(spec: Table, field: str, labels: Labels) -> Printed | None:
    """Return the paper's number in a place, whose empty labels do not count."""
    here = spec.paper.values if spec.paper else None
    for label in filter(None, labels):
        if not isinstance(here, Mapping):
            break
        here = next((value for key, value in here.items() if str(key) == label), None)
    if here is None or isinstance(here, Mapping):
        return None
    numbers = here if isinstance(here, list | tuple) else [here]
    if len(numbers) not in {1, 2} or not all(type(number) in {int, float} for number in numbers):
        raise InvalidInputError(
            f"{here!r} is neither a mean nor a mean and a sample SD",
            field=".".join((field, "paper.values", *labels)),
        )
    mean, *sd = map(float, numbers)
    return Printed(mean, sd[0] if sd else None)


def to_markdown(table: BuiltTable, level: int = 3) -> str:
    """Return a table in Markdown under a heading of a level."""
    title = f"{table.title} ({table.source})" if table.source else table.title
    remarks = [f"paper: {table.paper}"] if table.paper else []
    if table.missing:
        count = len(table.rows) * len(table.columns)
        remarks.append(f"{table.missing} of {count} figures lack cells")
    paragraphs = "\n".join(f"\n{remark}" for remark in (*remarks, *table.notes))
    text = f"{'#' * level} {title}\n\n{_grid(table)}\n{paragraphs}\n"
    return "\n".join([text, *(to_markdown(each, level + 1) for each in table.beside)])


def to_document(table: BuiltTable) -> dict[str, object]:
    """Return a table as fields that `json.dumps` accepts."""
    fields, names = asdict(table), ("title", "source", "paper", "headings", "columns", "rows")
    beside = [to_document(each) for each in table.beside]
    others = {"missing": table.missing, "notes": table.notes, "beside": beside}
    return {name: fields[name] for name in names} | others


def _grid(table: BuiltTable) -> str:
    labels = [*table.headings, *([""] if table.paper else [])]
    text = pd.DataFrame(_lines(table), columns=[*labels, *table.columns]).to_markdown(
        index=False,
        tablefmt="pipe",
        colalign=["left"] * len(labels) + ["right"] * len(table.columns),
        disable_numparse=True,
    )
    return "\n".join(line.rstrip() for line in text.splitlines())


def _lines(table: BuiltTable) -> Iterator[list[str]]:
    """Yield one line for each row, or two if the paper has figures in it."""
    for row in table.rows:
        ours = [_our_text(figure, table.digits) for figure in row.figures]
        printed = [_text(figure.paper, table.digits) for figure in row.figures]
        if table.paper is None:
            yield [*row.labels, *ours]
        elif any(figure.paper for figure in row.figures):
            yield [*row.labels, "paper", *printed]
            yield [*("" for _ in row.labels), "ours", *ours]
        else:
            yield [*row.labels, "ours", *ours]


def _our_text(figure: Figure, digits: int) -> str:
    count = len(figure.by_seed)
    if not count:
        return "not run" if figure.seeds else "-"
    text = _text(figure, digits)
    return text if count == figure.seeds else f"{text} ({count} of {figure.seeds} seeds)"


def _text(number: Figure | Printed | None, digits: int) -> str:
    if number is None:
        return "-"
    sd = "" if number.sd is None else f" ± {number.sd:.{digits}f}"
    return f"{number.mean:.{digits}f}{sd}"
