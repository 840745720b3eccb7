"""Finished runs as tidy pandas tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import pandas as pd

from modnorm.analysis.comparison import Results
from modnorm.analysis.costs import cost_rows, time_row
from modnorm.analysis.parquet_files import ANSWERS, answers_frame
from modnorm.analysis.run_files import read_candidate_rows, read_timings
from modnorm.analysis.tail import gains
from modnorm.errors import InvalidInputError

GROUP = ["model", "task", "method"]
"""Columns that are equal in runs which differ in their seed alone."""
RUN = [*GROUP, "seed"]

_Rows = list[dict[str, object]]


@dataclass(frozen=True)
class RunTables:
    """Tidy tables that begin with the columns of `RUN`; a table without rows has no columns."""

    ensembles: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each (N, K): `accuracy` in percent, number of `rows`."""
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


def tabulate_runs(runs: Sequence[Results]) -> RunTables:
    """Return the tables of finished runs.

    Args:
        runs: The runs. A method with several radii is named with its radius.

    Raises:
        InvalidInputError: two runs have equal columns of `RUN`, or a file cannot be read.
    """
    names = _run_columns(runs)
    parts = [_tabulate(run, name) for run, name in zip(runs, names, strict=True)]
    names_of_tables = [table.name for table in fields(RunTables)]
    return RunTables(
        *(_joined([getattr(part, each) for part in parts]) for each in names_of_tables)
    )


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()


def _tabulate(run: Results, name: Mapping[str, object]) -> RunTables:
    candidates, timings = read_candidate_rows(run.directory), read_timings(run.directory)

    def table(rows: _Rows) -> pd.DataFrame:
        return pd.DataFrame([{**name, **row} for row in rows])

    return RunTables(
        ensembles=table(_ensembles(run)),
        candidates=table(_candidates(run, candidates)),
        verdicts=_verdicts(run, name),
        votes=_votes(run, name),
        agreement=table(_agreement(run)),
        costs=table(cost_rows(run.document, candidates, timings, _heldout_tokens(run.directory))),
        times=table([time_row(timings)]),
    )


def _heldout_tokens(directory: Path) -> "pd.Series | None":
    """Return the tokens of the held-out answers by candidate; None without `answers.parquet`."""
    if not (directory / ANSWERS).exists():
        return None
    answers = answers_frame(directory, ["candidate", "split", "tokens"])
    return answers[answers["split"] == "heldout"].groupby("candidate")["tokens"].sum()


def _ensembles(run: Results) -> _Rows:
    return [
        {
            "N": each["population"],
            "K": each["ensemble_size"],
            "accuracy": 100 * each["metric"],
            "rows": each["rows"],
        }
        for each in run.document["ensembles"]
    ]


def _candidates(run: Results, candidates: pd.DataFrame) -> _Rows:
    base = run.document["base"]
    if run.document["candidates"]["stopped"] or base["selection_reward"] is None:
        return []
    scored = candidates[candidates["selection_reward"].notna()]
    accuracies = scored["selection_correct"] / scored["selection_answers"]
    base_accuracy = base["selection_accuracy"]
    found = zip(
        scored["index"],
        gains(scored["selection_reward"].tolist(), base["selection_reward"]),
        gains(accuracies.tolist(), float("nan") if base_accuracy is None else base_accuracy),
        strict=True,
    )
    return [
        {"N": len(candidates), "index": index, "reward_gain": reward, "accuracy_gain": accuracy}
        for index, reward, accuracy in found
    ]


def _verdicts(run: Results, name: Mapping[str, object]) -> pd.DataFrame:
    columns = {"population": "N", "ensemble_size": "K"}
    votes = run.vote_lines().rename(columns=columns)
    return pd.DataFrame([name]).merge(votes[["N", "K", "row", "correct"]], how="cross")


def _votes(run: Results, name: Mapping[str, object]) -> pd.DataFrame:
    columns = {"population": "N", "ensemble_size": "K", "correct_support": "right_experts"}
    votes = run.vote_lines().rename(columns=columns)
    skipped = votes.groupby(["N", "K"])["skipped"].transform("sum")
    whole = votes[skipped == 0].drop(columns="skipped")
    return pd.DataFrame([name]).merge(whole, how="cross")


def _agreement(run: Results) -> _Rows:
    return [
        {
            "N": each["population"],
            "K": each["ensemble_size"],
            **{key: value for key, value in agreement.items() if key != "correct_support"},
        }
        for each in run.document["ensembles"]
        if (agreement := each["agreement"]) is not None
    ]


def _run_columns(runs: Sequence[Results]) -> list[dict[str, object]]:
    """Return the model, task, method and seed of each run; refuse two equal runs."""
    settings = [(_of(run, "method", "name"), _of(run, "method", "radius")) for run in runs]
    radii = {
        method: {radius for name, radius in settings if name == method} for method, _ in settings
    }
    names: list[dict[str, object]] = []
    for run, (method, radius) in zip(runs, settings, strict=True):
        name = {
            "model": _of(run, "model", "name"),
            "task": _of(run, "task", "name"),
            "method": f"{method} {radius}" if len(radii[method]) > 1 else method,
            "seed": _of(run, "population", "seed"),
        }
        if name in names:
            raise InvalidInputError(
                f"{runs[names.index(name)].directory} and {run.directory} have the same model, "
                "task, method, radius and seed",
                field="directory",
                remedy="analyze them separately",
            )
        names.append(name)
    return names


def _of(run: Results, section: str, key: str) -> object:
    found = run.document["spec"].get(section)
    return found.get(key) if isinstance(found, dict) else None
