"""`modnorm compare`, `analyze` and `track`: finished runs beside each other and in figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from modnorm.cli.console import amount, echo, echo_table, emit_json, interval, note, percent, say
from modnorm.cli.options import arg, local_run, opt
from modnorm.errors import InvalidInputError
from modnorm.files import write_fault

if TYPE_CHECKING:
    from modnorm.analysis.comparison import ComparisonRow
    from modnorm.analysis.run import Run as FinishedRun

_SIDE_BY_SIDE = 3
"""Runs in one table: as many as a terminal of 100 columns shows."""
_ROWS = 20
"""Rows listed of each run."""
_INTERVALS = (
    "lower and upper: 95 % interval; Wilson for one seed, else a bootstrap over seeds and rows"
)


def compare(
    directories: Annotated[list[Path], arg("DIR", "Run directories, or folders with some.")],
) -> None:
    """Show finished runs side by side, with paired tests.

    The first run is paired with each other run by held-out row, at every (N, K) of both. McNemar's
    exact test, adjusted by Holm's method for the (N, K) of this pair, and a paired bootstrap show
    whether the data separates them. They compare row accuracy, which the table names where the
    task has another metric. `only` counts the rows that one run alone answers right.

    Brackets are 95 % Wilson intervals over the held-out rows. A line `K=5` is the vote of 5 at the
    largest N of a run.
    """
    from modnorm.analysis.comparison import compare_runs
    from modnorm.analysis.environments import describe_differing, describe_mixed

    rows = compare_runs(_load_runs(directories))
    if emit_json(rows):
        return
    first, sizes = rows[0]["run"], sorted({size for row in rows for size in row["ensembles"]})
    columns = [
        (
            row["run"],
            *map(str, (row["model"], row["task"], row["method"], row["radius"], row["seed"])),
            str(row["population"]),
            _metric(row["base"], row["base_interval"]),
            _metric(row["rank_1"], row["rank_1_interval"]),
            *(
                _metric(row["ensembles"][size], row["intervals"][size])
                if size in row["ensembles"]
                else None
                for size in sizes
            ),
        )
        for row in rows
    ]
    names = ["", "model", "task", "method", "radius", "seed", "N", "base", "rank 1 by selection"]
    names += [f"K={size}" for size in sizes]
    for start in range(0, len(columns), _SIDE_BY_SIDE):
        headings, *lines = (
            ["-" if cell is None else cell for cell in line]
            for line in zip(names, *columns[start : start + _SIDE_BY_SIDE], strict=True)
            if any(cell is not None for cell in line[1:])  # else no shown run has the ensemble
        )
        echo_table(headings, lines)
    for row in rows[1:]:
        _show_pairs(row, first)
    for row in rows:
        if row["differs"]:
            say(
                f"not comparable: {row['run']} differs from {first} in {', '.join(row['differs'])}"
            )
        if row["overlap"]:
            say(f"{row['run']}: {row['overlap']}")
        if mixed := describe_mixed(row["mixed_environments"]):
            say(f"{row['run']}: {mixed}")
        if other := describe_differing(row["other_environment"], first, row["run"]):
            say(other)


def _load_runs(directories: Sequence[Path]) -> "list[FinishedRun]":
    """Return the finished runs of directories, folders or ids; stderr names those left out."""
    from modnorm.analysis.run import load_runs
    from modnorm.analysis.run_files import VOTES, finished_runs

    places = [local_run(str(each), tables=[VOTES]) for each in directories]
    found = finished_runs(places, note)
    if not found:
        raise InvalidInputError(
            "none of the runs has finished",
            field="run",
            remedy="repeat the commands that started them",
        )
    return load_runs(found)


def _metric(value: float | None, bounds: Sequence[float] | None) -> str:
    return percent(value) if bounds is None else f"{percent(value)} {interval(bounds)}"


def _show_pairs(row: "ComparisonRow", first: str) -> None:
    from modnorm.analysis.comparison import compares_metric

    other = row["run"]
    if row["paired"]:
        headings = (
            f"{first} less {other}",
            "points" if all(map(compares_metric, row["paired"])) else "row accuracy",
            *("95 % bootstrap", f"only {first}", f"only {other}", "p", "p Holm"),
        )
        echo("")
        pairs = (
            (
                f"N={pair['population']} K={pair['ensemble_size']}",
                f"{100 * pair['difference']:+.1f}",
                interval(pair["difference_interval"]),
                str(pair["only_first"]),
                str(pair["only_other"]),
                _p(pair["p_value"]),
                _p(pair["adjusted_p_value"]),
            )
            for pair in row["paired"]
        )
        echo_table(headings, pairs)
    echo(row["verdict"] or "")
    for pair in row["paired"][-1:]:
        for run, rows in ((first, pair["rows_only_first"]), (other, pair["rows_only_other"])):
            if rows:
                listed, rest = ", ".join(map(str, rows[:_ROWS])), len(rows) - _ROWS
                more = f" and {rest} more (--json lists all)" if rest > 0 else ""
                echo(f"Rows right only in {run}: {listed}{more}.")


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def analyze(
    runs: Annotated[list[Path], arg("RUN", "Run directories, or folders with some.")],
    *,
    out: Annotated[Path, opt("--out DIR", "Where the files go.")] = Path("analysis"),
    reference: Annotated[
        str | None,
        opt(
            "--reference METHOD",
            "Method that others are compared with [default: randopt, else the first].",
        ),
    ] = None,
) -> None:
    """Write tables and figures of finished runs.

    They show scaling, tails, support and times. Runs of one model, task and method that differ in
    their seed are averaged. Tables are CSV, Parquet, Markdown and LaTeX, figures PNG and
    SVG.
    """
    from modnorm.analysis import analyses
    from modnorm.analysis.comparison import describe_differences
    from modnorm.analysis.document import describe_overlap
    from modnorm.analysis.figures import write_analysis

    found = _load_runs(runs)
    for run in found:
        if overlap := describe_overlap(run.document):
            note(f"{run.name}: {overlap}")
    for difference in describe_differences(found):
        say(difference)
    analysis = analyses.analyze(found, reference)
    try:
        figures = write_analysis(out, analysis)
    except OSError as error:
        raise write_fault(out, error) from error
    if emit_json(
        {
            "reference": analysis.reference,
            "tables": list(analysis.tables),
            "figures": list(figures),
        }
    ):
        return
    scaling = analysis.tables.get("population-scaling")
    if scaling is not None:
        columns = ["model", "task", "method", "N", "K", "seeds", "mean", "sd", "lower", "upper"]
        shown = [name for name in columns if name in scaling]
        rows = scaling[shown].map(
            lambda value: f"{value:.4g}" if isinstance(value, float) else str(value)
        )
        echo_table(shown, rows.replace("nan", "-").itertuples(index=False, name=None))
        say(_INTERVALS)
    counts = f"{amount(len(analysis.tables), 'table')} and {amount(len(figures), 'figure')}"
    say(f"{counts} written to {out}")


def track(
    directories: Annotated[list[Path], arg("DIR", "Directories of finished runs.")],
    *,
    to: Annotated[str, opt("--to TRACKER", "mlflow or wandb.")],
) -> None:
    """Log finished runs to an experiment tracker.

    Specs, held-out figures and files are logged. A run that is logged again continues its run in
    the tracker.
    """
    from modnorm.tracking import log_run

    for directory in directories:
        log_run(directory, to)
        say(f"logged {directory} to {to}")
    emit_json({"tracker": to, "directories": [str(each) for each in directories]})
