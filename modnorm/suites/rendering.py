"""Tables as built, with the paper's figures beside ours, and as Markdown and JSON."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from modnorm.errors import InvalidInputError
from modnorm.suites.suite_file import Labels, Table


class Figure(NamedTuple):
    """One number of a table; a missing mean or SD is NaN."""

    row: Labels
    """Labels of its row."""
    column: str
    by_seed: Mapping[int, float]
    """The values of the finished cells."""
    seeds: int
    """Number of seeds, finished or not, that can have a value."""
    mean: float
    sd: float
    """Sample SD over the seeds; missing with fewer than two."""
    paper: float
    paper_sd: float
    """Missing if the paper prints only a mean."""

    @property
    def is_complete(self) -> bool:
        """Whether the cells of all seeds are finished."""
        return len(self.by_seed) == self.seeds


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """A table with the figures of all finished cells."""

    title: str
    source: str
    headings: Labels
    """Headings of the row labels."""
    columns: Labels
    figures: tuple[Figure, ...]
    """By row, then by column."""
    digits: int = 2
    notes: tuple[str, ...] = ()
    paper_source: str | None = None
    """None if the paper has no such table."""
    beside: "tuple[BuiltTable, ...]" = ()
    """Tables of additional figures that the plot shows."""

    @property
    def missing(self) -> int:
        """Number of figures that lack the value of a seed."""
        return sum(not figure.is_complete for figure in self.figures)

    @property
    def rows(self) -> Mapping[Labels, Mapping[str, Figure]]:
        """The figures by row and column."""
        rows: dict[Labels, dict[str, Figure]] = {}
        for figure in self.figures:
            rows.setdefault(figure.row, {})[figure.column] = figure
        return rows


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
    figures = []
    for row, by_column in found.items():
        for column, heading in columns.items():
            by_seed = by_column.get(column, {})
            known = {seed: value for seed, value in by_seed.items() if not math.isnan(value)}
            numbers = list(known.values())
            figures.append(
                Figure(
                    row,
                    heading,
                    known,
                    len(by_seed),
                    statistics.fmean(numbers) if numbers else math.nan,
                    statistics.stdev(numbers) if len(numbers) > 1 else math.nan,
                    *_printed(spec, field, printed_at((*row, *column))),
                )
            )
    return BuiltTable(
        title=spec.title,
        source=spec.source,
        headings=tuple(rows if headings is None else headings),
        columns=tuple(columns.values()),
        figures=tuple(figures),
        digits=spec.digits,
        paper_source=spec.paper.source if spec.paper else None,
    )


def _printed(spec: Table, field: str, labels: Labels) -> tuple[float, float]:
    """Return the paper's mean and SD in a place, whose empty labels do not count."""
    here = spec.paper.values if spec.paper else None
    for label in filter(None, labels):
        if not isinstance(here, Mapping):
            break
        here = next((value for key, value in here.items() if str(key) == label), None)
    if here is None or isinstance(here, Mapping):
        return math.nan, math.nan
    numbers = here if isinstance(here, list | tuple) else [here]
    if len(numbers) not in {1, 2} or not all(type(number) in {int, float} for number in numbers):
        raise InvalidInputError(
            f"{here!r} is neither a mean nor a mean and a sample SD",
            field=".".join((field, "paper.values", *labels)),
        )
    mean, sd = map(float, (*numbers, math.nan)[:2])
    return mean, sd


def to_markdown(table: BuiltTable, level: int = 3) -> str:
    """Return a table in Markdown under a heading of a level."""
    title = f"{table.title} ({table.source})" if table.source else table.title
    remarks = [f"paper: {table.paper_source}"] if table.paper_source else []
    if table.missing:
        remarks.append(f"{table.missing} of {len(table.figures)} figures wait for cells")
    paragraphs = "\n".join(f"\n{remark}" for remark in (*remarks, *table.notes))
    text = f"{'#' * level} {title}\n\n{_grid(table)}\n{paragraphs}\n"
    return "\n".join([text, *(to_markdown(each, level + 1) for each in table.beside)])


def to_document(table: BuiltTable) -> dict[str, object]:
    """Return a table as JSON values."""
    return {
        "title": table.title,
        "source": table.source,
        "paper": table.paper_source,
        "headings": list(table.headings),
        "columns": list(table.columns),
        "rows": [
            {"labels": list(row), "figures": [_document(each) for each in by_column.values()]}
            for row, by_column in table.rows.items()
        ],
        "missing": table.missing,
        "notes": list(table.notes),
        "beside": [to_document(each) for each in table.beside],
    }


def _grid(table: BuiltTable) -> str:
    """Return headings and lines."""
    labels = [*table.headings, *([""] if table.paper_source else [])]
    text = pd.DataFrame(_lines(table), columns=[*labels, *table.columns]).to_markdown(
        index=False,
        tablefmt="pipe",
        colalign=["left"] * len(labels) + ["right"] * len(table.columns),
        disable_numparse=True,
    )
    return "\n".join(line.rstrip() for line in text.splitlines())


def _lines(table: BuiltTable) -> Iterator[list[str]]:
    """Yield one line for each row, or two if the paper has figures in it."""
    for row, by_column in table.rows.items():
        figures = by_column.values()
        ours = [_our_text(figure, table.digits) for figure in figures]
        if table.paper_source is None:
            yield [*row, *ours]
        elif any(not math.isnan(figure.paper) for figure in figures):
            printed = [_text(figure.paper, figure.paper_sd, table.digits) for figure in figures]
            yield [*row, "paper", *printed]
            yield [*("" for _ in row), "ours", *ours]
        else:
            yield [*row, "ours", *ours]


def _our_text(figure: Figure, digits: int) -> str:
    if not figure.by_seed:
        return "not run" if figure.seeds else "-"
    text = _text(figure.mean, figure.sd, digits)
    return (
        text if figure.is_complete else f"{text} ({len(figure.by_seed)} of {figure.seeds} seeds)"
    )


def _text(mean: float, sd: float, digits: int) -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.{digits}f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


def _document(figure: Figure) -> dict[str, object]:
    mean, sd, paper, paper_sd = (
        None if math.isnan(value) else value
        for value in (figure.mean, figure.sd, figure.paper, figure.paper_sd)
    )
    return {
        "mean": mean,
        "sd": sd,
        "by_seed": {str(seed): value for seed, value in sorted(figure.by_seed.items())},
        "seeds": figure.seeds,
        "paper": None if paper is None else {"mean": paper, "sd": paper_sd},
    }
