"""A suite of eight cells, and results made up for them."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from modnorm.analysis.export import write_run
from modnorm.analysis.run_data import CandidateRow, EnsembleRow, RunData, StateRow
from modnorm.search.ranking import select_experts
from modnorm.search.voting import RowVote
from modnorm.suites import Cell, LoadedSuite, load_suite
from modnorm.suites.building import build_tables
from modnorm.suites.outcomes import read_suite
from modnorm.suites.rendering import BuiltTable
from tests.small_results import rows_record
from verification.labs.bundled_tasks import bundled_task

SUITE: dict[str, object] = {
    "name": "small",
    "title": "A small suite",
    "base": {
        "model": "tiny-thicket",
        "population": {"size": 4, "prefixes": [2, 4], "ensemble_sizes": [1, 2]},
    },
    "axes": {
        "method": {
            "RandOpt": {"method": {"name": "randopt", "sigma": 0.01}},
            "MN": {"method": {"name": "modular_norm", "radius": 0.2}},
        },
        "task": {
            name: {"task": bundled_task("countdown", selection=10, heldout=rows)}
            for name, rows in (("puzzles", 10), ("more", 20))
        },
    },
    "seeds": [42, 43],
}
ROWS = 10
"""Selection rows, of which the made-up candidates answer as many right as their reward says."""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write the suite with some keys replaced; returns its file."""

    def make(**changes: object) -> Path:
        path = tmp_path / "suite.yaml"
        path.write_text(yaml.safe_dump({**SUITE, **changes}, sort_keys=False))
        return path

    return make


@pytest.fixture
def load(write: Callable[..., Path]) -> Callable[..., LoadedSuite]:
    """Load the suite with some keys replaced."""
    return lambda **changes: load_suite(write(**changes))


@pytest.fixture
def tables(tmp_path: Path) -> Callable[[LoadedSuite], Sequence[BuiltTable]]:
    """Build the tables of a suite from the results that `finish` wrote."""
    return lambda loaded: build_tables(read_suite(loaded, tmp_path / "out"))


def _votes(cell: Cell, right: Sequence[int], size: int) -> list[RowVote]:
    """Make votes of which those rows are right whose number of right experts is above half."""
    return [
        RowVote(
            answer="1", correct=2 * count > size, valid=size, support=size, correct_support=count
        )
        for count in (right or (0,))[: cell.spec.task.heldout.limit or 1]
    ]


def _states(accuracies: Sequence[float]) -> list[StateRow]:
    """Make states after 1, 2, ... updates, of which the last is the reported one."""
    return [
        StateRow(updates, "l", updates == len(accuracies), heldout_metric=accuracy)
        for updates, accuracy in enumerate(accuracies, start=1)
    ]


@pytest.fixture
def finish(tmp_path: Path) -> Callable[..., Path]:
    """Write made-up results of a cell; returns the directory of the suite."""

    def make(
        cell: Cell,
        rewards: Sequence[float | None],
        metrics: Mapping[tuple[int, int], float],
        *,
        base: float = 0.2,
        seconds: float = 60.0,
        right: Sequence[int] = (),
        spec: Mapping[str, object] | None = None,
        profile: str = "",
        states: Sequence[float] = (),
    ) -> Path:
        population = cell.spec.population
        chosen = select_experts(
            list(rewards), population.reported_prefixes, population.ensemble_sizes
        )
        heldout = cell.spec.task.heldout.limit or 0
        experts = {index for found in chosen.values() for index in found}
        candidates = [
            CandidateRow(
                index=index,
                seed=index,
                state="failed" if reward is None else "scored",
                selection_reward=reward,
                selection_answers=0 if reward is None else ROWS,
                selection_correct=round(ROWS * (reward or 0)),
                heldout_answers=heldout if index in experts else 0,
                worker="one",
                seconds=seconds,
            )
            for index, reward in enumerate(rewards)
        ]
        keys = itertools.product(population.reported_prefixes, population.ensemble_sizes)
        run = RunData(
            spec=spec or cell.spec.model_dump(mode="json"),
            provenance={"profile_digest": profile},
            data={
                split: rows_record(rows)
                for split, rows in (("selection", ROWS), ("heldout", heldout))
            },
            candidates=candidates,
            base=CandidateRow(
                *(-1, 0, "scored", base),
                heldout_metric=base,
                selection_answers=ROWS,
                selection_correct=round(ROWS * base),
            ),
            ensembles=[
                EnsembleRow(n, k, chosen[n, k], metrics.get((n, k), 0.0), 0, heldout)
                for n, k in keys
            ],
            votes={(n, k): _votes(cell, [min(count, k) for count in right], k) for n, k in chosen},
            states=_states(states),
            timings={"phases": {"sampling": seconds, "selecting": 4 * seconds, "voting": seconds}},
        )
        write_run(tmp_path / "out" / cell.id, run)
        return tmp_path / "out"

    return make
