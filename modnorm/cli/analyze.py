"""`modnorm analyze`: tables and figures of finished runs."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.options import Experts, Json

Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Run directories, folders with some, or one copy of the paper's results/.",
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go.")]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help="Method that others are compared with [default: randopt, else the first].",
    ),
]


def analyze(
    runs: Runs,
    *,
    out: Out = Path("analysis"),
    reference: Reference = None,
    experts: Experts = None,
    as_json: Json = False,
) -> None:
    """Write tables and figures of finished runs: scaling, tails, support, agreement, costs.

    Runs of one model, task and method that differ in their seed are averaged. Tables are CSV,
    Parquet, Markdown and LaTeX, figures PNG and SVG. RUN may be a copy of `results/` of the
    paper's public code: then its figures are drawn again and its summaries are checked.
    """
    from modnorm.cli.analyze_work import analyze_directories

    analyze_directories(runs, out, reference, experts, as_json=as_json)
