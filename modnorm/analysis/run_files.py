"""The files of run directories by name, and run directories by path: a run, or a folder with runs.

- `spec.json`: the first file of a run
- `rows/SPLIT.jsonl`: the rows, one line each, in the task's schema
- `scale_map.json`, `profile.json`, `descriptors.parquet`: the inputs of the candidates' weights
- `lineage.json`: the steps of a model that an iterative method trained
- `answers.parquet`: the answer of each model to each row
- `votes.parquet`: each vote with all of its ballots
- `candidates.csv`: one line for each candidate
- `plots/*.png`, `report.html`: one page, self-contained, and its plots
- `timings.json`: everything that may differ between two runs of one experiment: times, workers,
  attempts, ids, failure reasons and environments. Base and candidates refer to an environment by
  its index in `environments`.
- `results.json`: everything that depends on the experiment alone; written last
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from modnorm.errors import InvalidInputError

SPEC, TIMINGS, RESULTS = "spec.json", "timings.json", "results.json"
ANSWERS, VOTES, DESCRIPTORS = "answers.parquet", "votes.parquet", "descriptors.parquet"
SCALE_MAP, PROFILE, LINEAGE = "scale_map.json", "profile.json", "lineage.json"
CANDIDATES, REPORT = "candidates.csv", "report.html"
DISTILLATION = "distillation.json"
"""Name of the last file of a distillation's directory."""
PREDICTIONS = "predictions.jsonl"
"""Name of the last file of an experiment that only votes."""
STATE = "state"
"""Folder in which an embedded lab keeps its database, in a run or beside the cells of a suite."""
REWRITE = (
    "copy the whole directory; where the run was made, the same `modnorm run` or `modnorm show "
    f"--out` writes its files again and repeats no work; without its folder `{STATE}`, "
    "`modnorm run` with another --out runs the spec again"
)
"""Remedy for missing and damaged files of a run directory."""
PLOTS = "plots"
"""Folder of the report's plots."""
_FILES = frozenset(
    {
        *(SPEC, RESULTS, DISTILLATION, ANSWERS, VOTES, DESCRIPTORS, SCALE_MAP, PROFILE, LINEAGE),
        *(CANDIDATES, TIMINGS, REPORT, PREDICTIONS, ".lock", "inputs.json", "distil.log"),
    }
)
_FOLDERS = frozenset({PLOTS, "rows", "rounds", STATE})
"""What a run writes into its directory."""


def rows_file(split: str) -> str:
    """Return the name of the file that holds the rows of a split."""
    return f"rows/{split}.jsonl"


def rescored_file(scorer: str) -> str:
    """Return the name of the file that holds the figures of another scorer."""
    return f"rescored-{scorer}.json"


def unreadable(path: Path, error: Exception) -> InvalidInputError:
    """Return the error for a file of a run directory that is missing or damaged."""
    if isinstance(error, FileNotFoundError):
        problem = f"{path.parent} has no {path.name}"
    elif isinstance(error, OSError) and error.errno is not None:
        problem = f"cannot read {path}: {os.strerror(error.errno)}"
    elif isinstance(error, KeyError):
        problem = f"{path} has no column {error}"
    else:
        problem = f"cannot read {path}: {error}"
    return InvalidInputError(problem, field="run", remedy=REWRITE)


def runs_inside(path: Path) -> list[Path]:
    """Return the path if it is a run directory, else the run directories inside it by name.

    The directory of a distillation is followed by those of its searches.
    """
    if _is_run(path):
        return [path, *sorted(each for each in path.glob("rounds/*/") if _is_run(each))]
    return sorted(child for child in path.glob("*/") if _is_run(child))


def finished_runs(paths: Iterable[Path], note: Callable[[str], None]) -> list[Path]:
    """Return the run directories that paths name, and the finished ones inside folders."""
    found: list[Path] = []
    for path in paths:
        inside = runs_inside(path)
        if not inside and path.name == STATE and runs_inside(path.parent):
            note(f"{path} is left out: it is the database of a lab")
        elif not inside:
            raise not_a_run(path)
        elif inside == [path]:
            found.append(path)
        else:
            done = [run for run in inside if (run / RESULTS).is_file()]
            found += done
            for run in sorted(set(inside) - set(done)):
                finished = (run / DISTILLATION).is_file()
                state = "is a distillation" if finished else "has not finished"
                note(f"{run} is left out: it {state}")
            for folder in sorted(set(path.glob("*/")) - set(inside)):
                if not set(inside).issuperset(runs_inside(folder)):
                    note(f"{folder} is left out: it is a folder with runs; name it too")
    return found


def run_that_owns(path: Path) -> Path | None:
    """Return the run directory that keeps a file of its own at a path; None without one.

    The file need not exist: a run that has not finished writes it later. Other files, such as a
    user's notes, may lie in the directory.
    """
    target = path.resolve()
    for folder in filter(_is_run, target.parents):
        name = target.relative_to(folder).parts[0]
        if name in _FOLDERS or (target == folder / name and name in _FILES):
            return folder
    return None


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (SPEC, RESULTS))


def not_a_run(path: Path, other: str = "") -> InvalidInputError:
    """Return the error for a path without a run; `other` ends the remedy."""
    if (path / STATE).is_dir() and not any(path.glob("[!.]*.*")):  # no file but a hidden lock
        remedy = "the command that began it resumes it"
        return InvalidInputError(f"{path} has no results yet", field="run", remedy=remedy)
    there = "is not a run directory, and holds none" if path.exists() else "does not exist"
    remedy = folder_remedy(path) or f"name a directory that `modnorm run` wrote{other}"
    return InvalidInputError(f"{path} {there}", field="run", remedy=remedy)


def folder_remedy(path: Path) -> str:
    """Return the remedy for a path whose subfolders hold runs; empty if none of them does."""
    folders = [str(each) for each in sorted(path.glob("*/")) if runs_inside(each)]
    return f"name a folder with runs: {', '.join(folders)}" if folders else ""


STARTING = "starting"
"""Name in `timings.json` of the time that a run waited for the start of an engine."""
REPORTING = "reporting"
"""Name of the time that fetching a finished run and writing its files took."""

_NAMES = {
    "pending": "start",
    STARTING: "start",
    "calibrating": "calibrate",
    "sampling": "sample",
    "selecting": "search",
    "voting": "vote",
    REPORTING: "report",
}


def describe_seconds(timings: Mapping[str, object]) -> str | None:
    """Describe the seconds of each phase, in order; None if they are not known."""
    phases = timings.get("phases")
    seconds: dict[str, float] = {}
    for phase, name in _NAMES.items():
        if isinstance(phases, dict) and phase in phases:
            seconds[name] = seconds.get(name, 0.0) + phases[phase]
    figures = [f"{name} {each:.1f}" for name, each in seconds.items()]
    return f"seconds: {', '.join(figures)}" if figures else None
