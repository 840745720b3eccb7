"""One row for each value of the finished cells, and refusals of values that were not measured."""

from modnorm.suites.outcomes import read_suite
from tests.faults import error_at

REWARDS = (0.2, 0.3, None, 0.5)
PLACE = {"method": "MN", "task": "more"}


def test_values_that_a_finished_cell_lacks_are_refused(load, finish, tmp_path):
    """An earlier version stopped a candidate, and the run has no states."""
    loaded = load()
    cell = next(cell for cell in loaded.cells if cell.id == "mn_more_42")
    finish(cell, REWARDS, {(4, 2): 0.25})
    tidy = read_suite(loaded, tmp_path / "out")
    tidy.runs["mn_more_42"].document["candidates"]["failed"].clear()
    with error_at("directory", "mn_more_42 has not measured reward_gain"):
        tidy.values("reward_gain")
    with error_at("directory", "mn_more_42 has not measured state"):
        tidy.values("state")


def test_a_damaged_cell_elsewhere_is_not_read(load, finish, tmp_path):
    loaded = load()
    for name in ("mn_more_42", "mn_puzzles_42"):
        cell = next(cell for cell in loaded.cells if cell.id == name)
        finish(cell, REWARDS, {(4, 2): 0.25}, right=[2, 1, 0])
    (tmp_path / "out" / "mn_puzzles_42" / "votes.parquet").write_bytes(b"")
    tidy = read_suite(loaded, tmp_path / "out")
    assert len(tidy.at("right_experts", {**PLACE, "N": 4, "K": 2}).dropna()) == 3
    with error_at("run", "votes.parquet"):
        tidy.at("right_experts", {**PLACE, "task": "puzzles", "N": 4, "K": 2})
