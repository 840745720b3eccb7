"""Tables as text, Markdown and JSON, with the paper's line above ours."""

from collections.abc import Iterator

from modnorm.suites.built_tables import BuiltTable, Printed, TableFigure


def to_text(table: BuiltTable) -> str:
    """Return a table for a terminal."""
    headings, rows = _headings(table), list(_lines(table))
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    labels = len(headings) - len(table.columns)
    lines = [
        "  ".join(
            text.ljust(width) if place < labels else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (headings, *rows)
    ]
    text = "\n".join([_title(table), "", *lines, *_remarks(table)]) + "\n"
    return "\n".join([text, *map(to_text, table.beside)])


def to_markdown(table: BuiltTable, level: int = 3) -> str:
    """Return a table in Markdown under a heading of a level."""
    headings = _headings(table)
    labels = len(headings) - len(table.columns)
    rule = ["---"] * labels + ["---:"] * len(table.columns)
    body = "\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *_lines(table)))
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
            {"labels": list(row.labels), "figures": [_document(each) for each in row.figures]}
            for row in table.rows
        ],
        "missing": table.missing,
        "notes": list(table.notes),
        "beside": [to_document(each) for each in table.beside],
    }


def _title(table: BuiltTable) -> str:
    return f"{table.title} ({table.source})" if table.source else table.title


def _headings(table: BuiltTable) -> list[str]:
    return [*table.headings, *([""] if table.paper_source else []), *table.columns]


def _lines(table: BuiltTable) -> Iterator[list[str]]:
    """Yield one line for each row, or two if the paper has figures in it."""
    for row in table.rows:
        ours = [_our_text(figure, table.digits) for figure in row.figures]
        if table.paper_source is None:
            yield [*row.labels, *ours]
        elif any(figure.paper for figure in row.figures):
            printed = [_text(figure.paper, table.digits) for figure in row.figures]
            yield [*row.labels, "paper", *printed]
            yield [*("" for _ in row.labels), "ours", *ours]
        else:
            yield [*row.labels, "ours", *ours]


def _our_text(figure: TableFigure, digits: int) -> str:
    if figure.mean is None:
        return "not run" if figure.seeds else "-"
    text = _text(Printed(figure.mean, figure.sd), digits)
    return text if figure.is_complete else f"{text} ({len(figure.values)} of {figure.seeds} seeds)"


def _text(printed: Printed | None, digits: int) -> str:
    if printed is None:
        return "-"
    spread = "" if printed.sd is None else f" ± {printed.sd:.{digits}f}"
    return f"{printed.mean:.{digits}f}{spread}"


def _remarks(table: BuiltTable) -> list[str]:
    remarks = [f"paper: {table.paper_source}"] if table.paper_source else []
    if table.missing:
        count = sum(len(row.figures) for row in table.rows)
        remarks.append(f"{table.missing} of {count} figures wait for cells")
    remarks += table.notes
    return ["", *remarks] if remarks else []


def _document(figure: TableFigure) -> dict[str, object]:
    paper = figure.paper
    return {
        "mean": figure.mean,
        "sd": figure.sd,
        "by_seed": {str(seed): value for seed, value in sorted(figure.values.items())},
        "seeds": figure.seeds,
        "paper": None if paper is None else {"mean": paper.mean, "sd": paper.sd},
    }
