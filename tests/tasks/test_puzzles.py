import json

import pytest

from modnorm.spec import DataSpec
from modnorm.tasks import get_task, puzzles
from modnorm.tasks.row_loading import BUNDLED, load_data

SETS = {"countdown-selection": 200, "countdown-development": 200, "countdown-heldout": 500}


def test_puzzles_depend_on_the_seed_alone_and_nest():
    few = puzzles.generate_puzzles(5, 10)
    assert puzzles.generate_puzzles(5, 30)[:10] == few
    assert puzzles.generate_puzzles(6, 10) != few


@pytest.mark.parametrize(
    ("numbers", "target"),
    [([1, 3, 4, 6], 24), ([3, 3, 8, 8], 24), ([5, 5, 5, 1], 24), ([7], 7), ([2, 3], 6)],
)
def test_the_solver_finds_solutions_through_fractions(numbers, target):
    expression = puzzles.solve(numbers, target)
    row = {"numbers": numbers, "target": target}
    assert get_task("countdown").judge(row, f"<answer>{expression}</answer>").correct


@pytest.mark.parametrize(("name", "count"), SETS.items())
def test_bundled_puzzles_are_solved_by_their_stored_solutions(name, count):
    task = get_task("countdown")
    lines = (BUNDLED / f"{name}.jsonl").read_text().splitlines()
    solutions = [json.loads(line)["solution"] for line in lines]
    rows = load_data(task, DataSpec(source=f"bundled:{name}"), field="task.selection").rows
    assert len(rows) == count
    for row, solution in zip(rows, solutions, strict=True):
        assert task.judge(row, f"<answer>{solution}</answer>").correct


def test_the_bundled_file_equals_its_commands_output(tmp_path):
    out = tmp_path / "puzzles.jsonl"
    puzzles.main([str(out), "--seed", "1", "--count", "200"])
    assert out.read_bytes() == (BUNDLED / "countdown-selection.jsonl").read_bytes()
    other = tmp_path / "others.jsonl"
    puzzles.main([str(other), "--seed", "2", "--count", "200", "--exclude", str(out)])
    assert other.read_bytes() == (BUNDLED / "countdown-development.jsonl").read_bytes()
