"""Generators from solved puzzles."""

import json

import pytest

from modnorm.baselines.preparation import PreparationSettings
from modnorm.client import preparing
from modnorm.errors import InvalidInputError
from modnorm.spec import DataSpec
from tests.faults import error_at

ROWS = (
    {"numbers": [3, 5, 7], "target": 15, "solution": "3 + 5 + 7"},
    {"numbers": [3, 5, 7], "target": 15, "solution": "3 * 5"},
    {"numbers": [2, 4, 8], "target": 14, "solution": "2 + 4 + 8"},
    {"numbers": [2, 4, 8], "target": 10},
)


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return DataSpec(source=str(path))


def test_puzzles_that_are_solved_rightly_prepare_a_generator(tmp_path):
    told = []
    settings = PreparationSettings(epochs=1)
    generator = preparing.prepare_generator(
        "tiny-thicket",
        None,
        write(tmp_path / "rows.jsonl", ROWS),
        settings,
        on_batch=lambda *where: told.append(where),
    )

    record = json.loads(generator.canonical)["preparation"]
    assert record["examples"] == 2
    assert told == [(1, 1)]
    assert record["rate"] == 0.01


def test_rows_without_solutions_are_refused(tmp_path):
    data = write(tmp_path / "rows.jsonl", ROWS[3:])
    settings = PreparationSettings()

    with pytest.raises(InvalidInputError, match="no row of"):
        preparing.prepare_generator("tiny-thicket", None, data, settings, on_batch=print)


def test_a_row_that_is_no_puzzle_is_named_by_file_line_and_column(tmp_path):
    data = write(tmp_path / "rows.jsonl", [ROWS[0], {"country": "France"}])

    with error_at("data", r"rows\.jsonl, line 2, column 'numbers'"):
        preparing.prepare_generator(
            "tiny-thicket", None, data, PreparationSettings(), on_batch=print
        )
