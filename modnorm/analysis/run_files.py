"""The data files of a run directory, read back: votes, candidates, timings."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from modnorm.analysis.environments import Environment
from modnorm.analysis.phase_times import describe_seconds
from modnorm.errors import InvalidInputError

SPEC, TIMINGS, RESULTS = "spec.json", "timings.json", "results.json"
"""Names of the first, of the last but one and of the last file of a run directory."""
DISTILLATION = "distillation.json"
"""Name of the last file of a distillation's directory."""
PREDICTIONS = "predictions.jsonl"
"""Name of the last file of an experiment that only votes."""
REWRITE = (
    "copy the whole directory; where the run was made, the same `modnorm run` or `modnorm show "
    "--out` writes its files again and repeats no work"
)
"""Remedy for missing and damaged files of a run directory."""
_VOTE_COLUMNS = ["population", "ensemble_size", "row", "correct", "correct_support", "skipped"]
_CANDIDATE_COLUMNS = {
    "index": "int64",
    "state": "str",
    "selection_reward": "float64",
    "selection_tokens": "int64",
    "selection_answers": "int64",
    "selection_correct": "int64",
    "heldout_metric": "float64",
}


def read_vote_lines(directory: Path) -> pd.DataFrame:
    """Return the counts of `votes.jsonl`, one row for each (N, K) and held-out row.

    Raises:
        InvalidInputError: the file is missing or damaged.
    """
    path = directory / "votes.jsonl"
    try:
        with path.open(encoding="utf-8") as lines:
            votes = [[vote[name] for name in _VOTE_COLUMNS] for vote in map(json.loads, lines)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise unreadable(path, error) from error
    return pd.DataFrame(votes, columns=_VOTE_COLUMNS)


def read_candidate_rows(directory: Path) -> pd.DataFrame:
    """Return the figures of `candidates.csv`, one row for each candidate, in order.

    Raises:
        InvalidInputError: the file is missing or damaged.
    """
    path = directory / "candidates.csv"
    try:
        # Text is converted exactly; parsing as numbers is not exact in every version of pandas.
        text = pd.read_csv(path, usecols=list(_CANDIDATE_COLUMNS), dtype=str)
        return text.astype(_CANDIDATE_COLUMNS)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def read_timings(directory: Path) -> Mapping[str, object]:
    """Return the content of `timings.json`.

    Raises:
        InvalidInputError: the file is missing or damaged.
    """
    path = directory / TIMINGS
    try:
        timings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not isinstance(timings, dict):
        raise InvalidInputError(f"{path} holds no JSON object", field="run")
    return timings


def read_seconds(directory: Path) -> str | None:
    """Return the seconds of each phase in words; None where `timings.json` is missing.

    Raises:
        InvalidInputError: the file is damaged.
    """
    return describe_seconds(read_timings(directory)) if (directory / TIMINGS).exists() else None


def read_environments(directory: Path) -> Sequence[Environment]:
    """Return the environments that `timings.json` lists.

    Raises:
        InvalidInputError: the file is missing or damaged.
    """
    listed = read_timings(directory).get("environments")
    found = listed if isinstance(listed, list) else []
    return [each for each in found if isinstance(each, dict)]


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
