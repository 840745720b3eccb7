"""Tables as text, Markdown and JSON; the paper's line stands above ours."""

from collections.abc import Iterator, Sequence

from modnorm.suites.figures import BuiltTable, Figure, FigureRow, Printed

ABSENT = "-"


def to_text(table: BuiltTable) -> str:
    """Return a table for a terminal."""
    lines = [_title(table), ""]
    headings, rows = _headings(table), list(_lines(table))
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    labels = len(headings) - len(table.columns)
    for row in (headings, *rows):
        cells = [
            text.ljust(width) if place < labels else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    text = "\n".join([*lines, *_remarks(table)]) + "\n"
    return "\n".join([text, *map(to_text, table.beside)])


def to_markdown(table: BuiltTable, level: int = 3) -> str:
    """Return a table in Markdown, under a heading of a level."""
    headings = _headings(table)
    labels = len(headings) - len(table.columns)
    rule = ["---"] * labels + ["---:"] * len(table.columns)
    rows = [" | ".join(row) for row in (headings, rule, *_lines(table))]
    body = "\n".join(f"| {row} |" for row in rows)
    remarks = "\n".join(f"\n{remark}" for remark in _remarks(table) if remark)
    text = f"{'#' * level} {_title(table)}\n\n{body}\n{remarks}\n"
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
            {
                "labels": list(row.labels),
                "figures": [_document(figure) for figure in row.figures],
            }
            for row in table.rows
        ],
        "missing": table.missing,
        "notes": list(table.notes),
        "beside": [to_document(each) for each in table.beside],
    }


def _title(table: BuiltTable) -> str:
    return f"{table.title} ({table.source})" if table.source else table.title


def _headings(table: BuiltTable) -> list[str]:
    whose = [""] if table.paper_source else []
    return [*table.headings, *whose, *table.columns]


def _lines(table: BuiltTable) -> Iterator[list[str]]:
    """Yield the lines: one a row, or two where the paper has numbers."""
    for row in table.rows:
        if table.paper_source is None:
            yield [*row.labels, *(_ours(figure, table.digits) for figure in row.figures)]
            continue
        if any(figure.paper for figure in row.figures):
            printed = (_printed(figure.paper, table.digits) for figure in row.figures)
            yield [*row.labels, "paper", *printed]
        yield [*_again(row), "ours", *(_ours(figure, table.digits) for figure in row.figures)]


def _again(row: FigureRow) -> Sequence[str]:
    """Return the labels of the second line of a row: they stand above it already."""
    if any(figure.paper for figure in row.figures):
        return [""] * len(row.labels)
    return row.labels


def _printed(found: Printed | None, digits: int) -> str:
    return ABSENT if found is None else _number(found.mean, found.sd, digits)


def _ours(figure: Figure, digits: int) -> str:
    if figure.mean is None:
        return "not run"
    text = _number(figure.mean, figure.sd, digits)
    return text if figure.is_complete else f"{text} ({len(figure.values)} of {figure.seeds} seeds)"


def _number(mean: float, sd: float | None, digits: int) -> str:
    spread = "" if sd is None else f" ± {sd:.{digits}f}"
    return f"{mean:.{digits}f}{spread}"


def _remarks(table: BuiltTable) -> list[str]:
    remarks = [f"paper: {table.paper_source}"] if table.paper_source else []
    if table.missing:
        count = sum(len(row.figures) for row in table.rows)
        remarks.append(f"{table.missing} of {count} figures wait for cells")
    remarks += table.notes
    return ["", *remarks] if remarks else []


def _document(figure: Figure) -> dict[str, object]:
    paper = figure.paper
    return {
        "mean": figure.mean,
        "sd": figure.sd,
        "by_seed": {str(seed): value for seed, value in sorted(figure.values.items())},
        "seeds": figure.seeds,
        "paper": None if paper is None else {"mean": paper.mean, "sd": paper.sd},
    }
