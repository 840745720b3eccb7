"""Run directories by path: a run, or a folder with runs."""

from collections.abc import Callable, Iterable
from pathlib import Path

from modnorm.analysis.descriptors import DESCRIPTORS
from modnorm.analysis.parquet_files import ANSWERS, VOTES
from modnorm.analysis.records import LINEAGE, PROFILE, SCALE_MAP
from modnorm.analysis.run_files import DISTILLATION, RESULTS, SPEC
from modnorm.errors import InvalidInputError

_STATE = "state"
"""Folder in which `modnorm run` keeps the database of several runs, beside them."""
_FILES = frozenset(
    {
        *(SPEC, RESULTS, DISTILLATION, ANSWERS, VOTES, DESCRIPTORS, SCALE_MAP, PROFILE, LINEAGE),
        *("candidates.csv", "votes.jsonl", "timings.json", "report.html", ".lock"),
        *("inputs.json", "distil.log"),
    }
)
_FOLDERS = frozenset({"plots", "rows", "rounds", _STATE})
"""What a run writes into its directory."""


def runs_inside(path: Path) -> list[Path]:
    """Return the path if it is a run directory, else the run directories inside it by name.

    The directory of a distillation is followed by those of its searches.
    """
    if _is_run(path):
        return [path, *sorted(each for each in path.glob("rounds/*/") if _is_run(each))]
    return sorted(child for child in path.glob("*/") if _is_run(child))


def finished_runs(paths: Iterable[Path], note: Callable[[str], None]) -> list[Path]:
    """Return the run directories that paths name, and the finished ones inside folders.

    Args:
        paths: Run directories, or folders with some. A lab's `state/` among them is left out, so
            `runs/*` names all runs of a folder.
        note: Called with a text for each directory that is left out.

    Raises:
        InvalidInputError: a path is not a run directory and holds none.
    """
    found: list[Path] = []
    for path in paths:
        inside = runs_inside(path)
        if not inside and path.name == _STATE and runs_inside(path.parent):
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
                if runs_inside(folder):
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


def not_a_run(path: Path) -> InvalidInputError:
    """Return the error for a path without a run."""
    there = "is not a run directory, and holds none" if path.exists() else "does not exist"
    remedy = folder_remedy(path) or "name a directory that `modnorm run` wrote"
    return InvalidInputError(f"{path} {there}", field="run", remedy=remedy)


def folder_remedy(path: Path) -> str:
    """Return the remedy for a path whose subfolders hold runs; empty if none of them does."""
    folders = [str(each) for each in sorted(path.glob("*/")) if runs_inside(each)]
    return f"name a folder with runs: {', '.join(folders)}" if folders else ""
