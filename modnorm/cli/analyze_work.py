"""The work of `modnorm analyze`: read runs, write the files, show the main table."""

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.table import Table

from modnorm.analysis.analyses import Analysis, analyze
from modnorm.analysis.analysis_files import WrittenAnalysis, write_analysis
from modnorm.analysis.comparison import describe_differences
from modnorm.analysis.document import describe_overlap
from modnorm.analysis.published import is_published
from modnorm.analysis.published_analysis import analyze_published
from modnorm.analysis.run_tables import tabulate_runs
from modnorm.analysis.table_files import write_table
from modnorm.cli.console import amount, emit_json, note, say, stdout, table
from modnorm.cli.options import refuse_given
from modnorm.cli.runs import load_runs
from modnorm.errors import InvalidInputError
from modnorm.files import write_fault

_INTERVALS = (
    "lower and upper: 95 % interval; Wilson for one seed, else a bootstrap over seeds and rows"
)


def analyze_directories(
    directories: Sequence[Path],
    out: Path,
    reference: str | None,
    experts: str | None,
    *,
    as_json: bool,
) -> None:
    """Analyze finished runs, or the published results; write the files and show the main table.

    Raises:
        InvalidInputError: a directory holds neither a run nor published results, or both
            kinds are mixed.
    """
    check = pd.DataFrame()
    published = [directory for directory in directories if is_published(directory)]
    if not published:
        analysis = _analyze_runs(directories, reference, experts)
    elif len(directories) == 1:
        refuse_given({"experts": experts}, "published results hold no answers", "leave it out")
        analysis, check = analyze_published(directories[0])
    else:
        raise InvalidInputError(
            f"{published[0]} holds published results",
            field="run",
            remedy="analyze it alone",
        )
    try:
        written = write_analysis(out, analysis)
        if len(check):
            write_table(out, "published-check", check)
    except OSError as error:
        raise write_fault(out, error) from error
    if as_json:
        emit_json(_document(analysis, written, check))
    else:
        _show(analysis, written, check, out)


def _analyze_runs(
    directories: Sequence[Path], reference: str | None, experts: str | None
) -> Analysis:
    runs = load_runs(directories, experts)
    for run in runs:
        if overlap := describe_overlap(run.document):
            note(f"{run.name}: {overlap}")
    for difference in describe_differences(runs):
        say(difference)
    return analyze(tabulate_runs(runs), reference)


def _document(
    analysis: Analysis, written: WrittenAnalysis, check: pd.DataFrame
) -> dict[str, object]:
    return {
        "reference": analysis.reference,
        "tables": list(written.tables),
        "figures": list(written.figures),
        "published_check": check.to_dict("records"),
    }


def _show(analysis: Analysis, written: WrittenAnalysis, check: pd.DataFrame, out: Path) -> None:
    scaling = analysis.tables.get("population-scaling")
    if scaling is not None:
        columns = ["model", "task", "method", "N", "K", "seeds", "mean", "sd", "lower", "upper"]
        stdout().print(_table(scaling, columns))
        if not len(check):  # few of the published results have rows
            say(_INTERVALS)
    if len(check):
        stdout().print()
        stdout().print(_table(check, list(check.columns)))
    counts = f"{amount(len(written.tables), 'table')} and {amount(len(written.figures), 'figure')}"
    say(f"{counts} written to {out}")


def _table(frame: pd.DataFrame, columns: Sequence[str]) -> Table:
    shown = [name for name in columns if name in frame]
    rows = frame[shown].itertuples(index=False, name=None)
    return table(shown, ([_cell(value) for value in row] for row in rows))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return str(value)
