"""Finished runs as tidy frames: every table of `analyze` and of suites is a pivot of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import pandas as pd

from modnorm.analysis.run import Run
from modnorm.analysis.run_files import ANSWERS
from modnorm.errors import InvalidInputError

GROUP = ["model", "task", "method"]
"""Columns that are equal in runs which differ in their seed alone."""
RUN = [*GROUP, "seed"]
_VOTE_COLUMNS = MappingProxyType(
    {"population": "N", "ensemble_size": "K", "correct_support": "right_experts"}
)


@dataclass(frozen=True)
class RunTables:
    """Tidy tables that begin with the columns of `RUN`; a table without rows has no columns."""

    ensembles: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each (N, K): `accuracy` in percent, number of `rows`, `evaluations`."""
    candidates: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each candidate with a complete score: `N` of its population, `index`, and its
    gains over the base in percentage points, `reward_gain` and `accuracy_gain`. Without rows of
    runs in which candidates were stopped early."""
    verdicts: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each (N, K) and held-out `row`: whether the vote is `correct`."""
    votes: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each (N, K) and held-out row: number m of `right_experts`, and whether the vote
    is `correct`. Without rows of an (N, K) whose experts skipped held-out rows."""
    agreement: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each (N, K), with the figures of `modnorm.analysis.statistics.VoteAgreement`."""
    costs: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each (N, K): evaluations, tokens and device seconds that it takes alone."""
    times: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each run: seconds by phase."""


def tabulate_runs(runs: Sequence[Run]) -> RunTables:
    """Return the tables of finished runs."""
    names = _run_columns(runs)
    tables = {}
    for table, read in READERS.items():
        frames = [
            pd.DataFrame([name]).merge(frame, how="cross")
            for run, name in zip(runs, names, strict=True)
            if len(frame := read(run))
        ]
        tables[table] = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    return RunTables(**tables)


def _ensembles(run: Run) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "N": each["population"],
            "K": each["ensemble_size"],
            "accuracy": 100 * each["metric"],
            "rows": each["rows"],
            "evaluations": each["budget"]["total"],
        }
        for each in run.document["ensembles"]
    )


def _candidates(run: Run) -> pd.DataFrame:
    base = run.document["base"]
    if run.document["candidates"]["stopped"] or base["selection_reward"] is None:
        return pd.DataFrame()
    candidates = run.candidates_frame
    scored = candidates[candidates["selection_reward"].notna()]
    accuracies = scored["selection_correct"] / scored["selection_answers"]
    base_accuracy = base["selection_accuracy"]
    return pd.DataFrame(
        {
            "N": len(candidates),
            "index": scored["index"],
            "reward_gain": 100 * (scored["selection_reward"] - base["selection_reward"]),
            "accuracy_gain": 100
            * (accuracies - (math.nan if base_accuracy is None else base_accuracy)),
        }
    )


def _verdicts(run: Run) -> pd.DataFrame:
    return run.vote_counts().rename(columns=_VOTE_COLUMNS)[["N", "K", "row", "correct"]]


def _votes(run: Run) -> pd.DataFrame:
    votes = run.vote_counts().rename(columns=_VOTE_COLUMNS)
    skipped = votes.groupby(["N", "K"])["skipped"].transform("sum")
    return votes[skipped == 0].drop(columns="skipped")


def _agreement(run: Run) -> pd.DataFrame:
    return pd.DataFrame(
        {"N": each["population"], "K": each["ensemble_size"], **agreement}
        for each in run.document["ensembles"]
        if (agreement := each["agreement"]) is not None
    ).drop(columns="correct_support", errors="ignore")


def _costs(run: Run) -> pd.DataFrame:
    """Return evaluations, generated tokens and seconds over workers of each (N, K) alone.

    Each is split in `search` and `final`. Final tokens need `answers.parquet`.
    """
    candidates = run.candidates_frame
    timed = run.timings().get("candidates")
    seconds = pd.DataFrame(
        timed if isinstance(timed, list) else [], columns=["index", "seconds", "heldout_seconds"]
    )
    heldout = None
    if (run.path / ANSWERS).exists():
        answers = run.answers_frame(["candidate", "split", "tokens"])
        heldout = answers[answers["split"] == "heldout"].groupby("candidate")["tokens"].sum()
    rows = []
    for each in run.document["ensembles"]:
        population, experts, budget = each["population"], each["experts"], each["budget"]
        tokens = int(candidates["selection_tokens"].iloc[:population].sum())
        final = None if heldout is None else int(heldout.reindex(experts, fill_value=0).sum())
        searching = float(seconds["seconds"].iloc[:population].sum())
        voting = float(seconds.loc[seconds["index"].isin(experts), "heldout_seconds"].sum())
        rows.append(
            {
                "N": population,
                "K": each["ensemble_size"],
                "search_evaluations": budget["search"],
                "final_evaluations": budget["final"],
                "evaluations": budget["total"],
                "search_tokens": tokens,
                "final_tokens": final,
                "tokens": None if final is None else tokens + final,
                "search_seconds": searching,
                "final_seconds": voting,
                "device_seconds": searching + voting,
            }
        )
    return pd.DataFrame(rows)


def _times(run: Run) -> pd.DataFrame:
    """Return the seconds of a run by phase: its scope in `timings.json`, in one row.

    `search` and `end_to_end` have the paper's scope; `wall_*` are elapsed times and `device_*`
    sums over the workers.
    """
    scope = run.timings().get("scope")
    row: dict[str, object] = {}
    for name, value in scope.items() if isinstance(scope, dict) else ():
        if isinstance(value, dict):
            row |= {f"{name}_{phase}": seconds for phase, seconds in value.items()}
        else:
            row[name] = value
    return pd.DataFrame([row])


READERS: Mapping[str, Callable[[Run], pd.DataFrame]] = MappingProxyType(
    {
        "ensembles": _ensembles,
        "candidates": _candidates,
        "verdicts": _verdicts,
        "votes": _votes,
        "agreement": _agreement,
        "costs": _costs,
        "times": _times,
    }
)
"""The function that reads each table of one run, without the columns that name the run."""


def _run_columns(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return the model, task, method and seed of each run; refuse two equal runs."""
    settings = [(_of(run, "method", "name"), _of(run, "method", "radius")) for run in runs]
    radii = {
        method: {radius for name, radius in settings if name == method} for method, _ in settings
    }
    names: dict[tuple[object, ...], Run] = {}
    for run, (method, radius) in zip(runs, settings, strict=True):
        name = (
            _of(run, "model", "name"),
            _of(run, "task", "name"),
            f"{method} {radius}" if len(radii[method]) > 1 else method,
            _of(run, "population", "seed"),
        )
        if name in names:
            raise InvalidInputError(
                f"{names[name].path} and {run.path} have the same model, task, method, "
                "radius and seed",
                field="directory",
                remedy="analyze them separately",
            )
        names[name] = run
    return [dict(zip(RUN, name, strict=True)) for name in names]


def _of(run: Run, section: str, key: str) -> object:
    found = run.document["spec"].get(section)
    return found.get(key) if isinstance(found, dict) else None
