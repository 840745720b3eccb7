"""Finished runs as tidy frames: every table of `analyze` and of suites is a pivot of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import pandas as pd

from modnorm.analysis.run import Run
from modnorm.analysis.run_files import ANSWERS
from modnorm.errors import InvalidInputError

GROUP = ["model", "task", "method"]
"""Columns that are equal in runs which differ in their seed alone."""
RUN = [*GROUP, "seed"]
PLACE = [*RUN, "N", "K"]
"""Columns that name one ensemble of one run."""


@dataclass(frozen=True)
class RunFrames:
    """Frames that begin with the columns that name a run; one without rows has no columns."""

    runs: Sequence[Run]
    names: Sequence[Mapping[str, object]]
    """Values of the first columns, by run."""

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Self:
        """Name runs by `RUN`; a method at several radii is named with its radius."""
        settings = [(_of(run, "method", "name"), _of(run, "method", "radius")) for run in runs]
        names: dict[tuple[object, ...], Run] = {}
        for run, (method, radius) in zip(runs, settings, strict=True):
            is_alone = {one for name, one in settings if name == method} == {radius}
            name = (
                _of(run, "model", "name"),
                _of(run, "task", "name"),
                method if is_alone else f"{method} {radius}",
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
        return cls(runs, [dict(zip(RUN, name, strict=True)) for name in names])

    def read(self, read: Callable[[Run], pd.DataFrame]) -> pd.DataFrame:
        """Return the lines that a function reads from each run, below each other."""
        frames = [
            pd.DataFrame([name]).merge(lines, how="cross")
            for run, name in zip(self.runs, self.names, strict=True)
            if len(lines := read(run))
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    @cached_property
    def ensembles(self) -> pd.DataFrame:
        """A row for each (N, K): `accuracy` in percent, number of `rows`, `evaluations`."""
        return self.read(_ensembles)

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """A row for each scored candidate: `N` of its population, `index`, and its gains.

        `reward_gain` and `accuracy_gain` are over the base, in percentage points. Runs in which
        candidates were stopped early have no rows.
        """
        return self.read(_candidates)

    @cached_property
    def votes(self) -> pd.DataFrame:
        """A row for each (N, K) and held-out `row`: `correct`, and `right_experts`.

        The number of right experts is missing in an (N, K) whose experts skipped rows.
        """
        return self.read(_votes)

    @cached_property
    def agreement(self) -> pd.DataFrame:
        """A row for each (N, K), with the figures of `modnorm.analysis.document`."""
        return self.read(_agreement)

    @cached_property
    def costs(self) -> pd.DataFrame:
        """A row for each (N, K): evaluations, tokens and device seconds that it takes alone."""
        return self.read(_costs)

    @cached_property
    def times(self) -> pd.DataFrame:
        """A row for each run: seconds by phase, its scope in `timings.json`.

        `search` and `end_to_end` have the paper's scope; `wall_*` are elapsed times and `device_*`
        sums over the workers.
        """
        return self.read(_times)


def _of(run: Run, section: str, key: str) -> object:
    found = run.document["spec"].get(section)
    return found.get(key) if isinstance(found, dict) else None


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
    accuracy = math.nan if base_accuracy is None else base_accuracy
    return pd.DataFrame(
        {
            "N": len(candidates),
            "index": scored["index"],
            "reward_gain": 100 * (scored["selection_reward"] - base["selection_reward"]),
            "accuracy_gain": 100 * (accuracies - accuracy),
        }
    )


def _votes(run: Run) -> pd.DataFrame:
    votes = run.vote_counts().rename(
        columns={"population": "N", "ensemble_size": "K", "correct_support": "right_experts"}
    )
    skipped = votes.groupby(["N", "K"])["skipped"].transform("sum")
    known = votes["right_experts"].where(skipped == 0)
    return votes.assign(right_experts=known).drop(columns="skipped")


def _agreement(run: Run) -> pd.DataFrame:
    return pd.DataFrame(
        {"N": each["population"], "K": each["ensemble_size"], **agreement}
        for each in run.document["ensembles"]
        if (agreement := each["agreement"]) is not None
    ).drop(columns="correct_support", errors="ignore")


def _costs(run: Run) -> pd.DataFrame:
    """Split each cost in `search` and `final`; final tokens need `answers.parquet`."""
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
    scope = run.timings().get("scope")
    row: dict[str, object] = {}
    for name, value in scope.items() if isinstance(scope, dict) else ():
        parts = value.items() if isinstance(value, dict) else ()
        row |= {f"{name}_{phase}": seconds for phase, seconds in parts} if parts else {name: value}
    return pd.DataFrame([row])
