"""`modnorm compare`: finished runs side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import emit_json, percent, stderr, stdout, table
from modnorm.cli.options import Json

if TYPE_CHECKING:
    from rich.table import Table

Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Directories of finished runs.")
]


def compare(directories: Directories, *, as_json: Json = False) -> None:
    """Show finished runs side by side and say what keeps them from being compared."""
    from modnorm.analysis.comparison import comparison, load_results
    from modnorm.analysis.environments import describe_mixed

    rows = comparison([load_results(directory) for directory in directories])
    if as_json:
        emit_json(rows)
        return
    stdout().print(_table(rows))
    for row in rows:
        if row["differs"]:
            _warn(str(row["run"]), row["differs"], str(rows[0]["run"]))
        if note := describe_mixed(row["mixed_environments"]):
            stderr().print(f"{row['run']}: {note}", soft_wrap=True)


def _warn(run: str, differs: object, first: str) -> None:
    names = ", ".join(differs) if isinstance(differs, list) else differs
    stderr().print(f"not comparable: {run} differs from {first} in {names}", soft_wrap=True)


def _table(rows: Sequence[Mapping[str, object]]) -> "Table":
    sizes = sorted({size for row in rows for size in _ensembles(row)})
    headings = ("run", "method", "scale", "seed", "N", "base", "rank 1 by selection")
    return table(
        (*headings, *(f"K={size}" for size in sizes)),
        (
            (
                *(str(row[name]) for name in ("run", "method", "radius", "seed", "population")),
                _metric(row["base"]),
                _metric(row["rank_1"]),
                *(_metric(_ensembles(row).get(size)) for size in sizes),
            )
            for row in rows
        ),
    )


def _ensembles(row: Mapping[str, object]) -> Mapping[int, object]:
    found = row["ensembles"]
    return found if isinstance(found, dict) else {}


def _metric(value: object) -> str:
    return percent(value if isinstance(value, float) else None)
