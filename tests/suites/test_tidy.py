"""The tidy table: one row for each value, and refusals of values that a run did not measure."""

import csv

import pytest

from modnorm.errors import InvalidInputError
from modnorm.suites.outcomes import load_outcomes
from modnorm.suites.tidy import TidySuite, select
from tests.faults import error_at

REWARDS = (0.2, 0.3, None, 0.5)
PLACE = {"method": "MN", "task": "more"}


@pytest.fixture
def tidy(load, finish, tmp_path):
    """Return the tidy suite with the cell `mn_more_42` finished."""
    loaded = load()
    cell = next(cell for cell in loaded.cells if cell.id == "mn_more_42")
    finish(cell, REWARDS, {(2, 1): 0.5, (4, 2): 0.25}, right=[2, 1, 0])
    return TidySuite(loaded, load_outcomes(loaded.cells, tmp_path / "out"), "tables.0")


@pytest.fixture
def candidates(tidy, tmp_path):
    """Rewrite a column of the finished cell's `candidates.csv`."""

    def rewrite(column, value):
        path = tmp_path / "out" / "mn_more_42" / "candidates.csv"
        rows = list(csv.DictReader(path.read_text().splitlines()))
        rows[0][column] = value
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    return rewrite


def test_every_ensemble_of_every_cell_has_a_row(tidy):
    metrics = tidy.values("metric")
    assert len(metrics) == 8 * 4
    assert set(metrics.columns) == {"method", "task", "cell", "seed", "N", "K", "value"}
    found = metrics.dropna().set_index(["cell", "N", "K"])["value"].to_dict()
    assert found == {
        ("mn_more_42", 2, 1): 50.0,
        ("mn_more_42", 2, 2): 0.0,
        ("mn_more_42", 4, 1): 0.0,
        ("mn_more_42", 4, 2): 25.0,
    }


def test_gains_have_a_row_for_each_scored_candidate(tidy):
    gains = tidy.at("reward_gain", PLACE)
    finished = gains[gains["seed"] == 42]
    assert finished["item"].tolist() == [0, 1, 3]
    assert finished["value"].tolist() == pytest.approx([0.0, 10.0, 30.0])
    assert gains[gains["seed"] == 43]["value"].isna().tolist() == [True]


def test_votes_are_those_of_the_picked_ensemble(tidy):
    votes = tidy.at("votes", {**PLACE, "N": 4, "K": 2}).dropna()
    assert votes["value"].tolist() == [2, 1, 0]
    assert votes["is_correct"].tolist() == [True, False, False]


def test_rows_have_the_order_of_the_suite_file(tidy):
    places = tidy.cells.sort_values(["method", "task", "seed"])
    assert places["cell"].tolist() == tidy.cells["cell"].tolist()
    assert select(places, {"method": "MN", "seed": 43})["task"].tolist() == ["puzzles", "more"]


def test_candidates_that_early_stop_ended_are_refused(tidy, candidates):
    candidates("selection_answers", "5")
    with error_at("population.statistics", "mn_more_42 did not score all"):
        tidy.values("reward_gain")


def test_damaged_candidates_are_refused(tidy, candidates):
    candidates("selection_reward", "much")
    with pytest.raises(InvalidInputError, match=r"cannot read .*candidates\.csv"):
        tidy.values("reward_gain")


def test_results_of_states_are_those_of_iterative_runs(tidy):
    with pytest.raises(InvalidInputError, match="has no results of its states"):
        tidy.values("state")
