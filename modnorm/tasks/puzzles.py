"""A generator of Countdown puzzles, and the exhaustive solver that checks them.

    python -m modnorm.tasks.puzzles OUT.jsonl --seed S --count N [--exclude FILE.jsonl ...]

writes rows of the task `countdown` that differ from one another and from all excluded rows.
`--exclude bundled` excludes the rows of the package.
"""

import argparse
import json
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path

from modnorm.errors import InvalidInputError

THREE_NUMBERS = 0.6
"""Share of puzzles with three numbers; the others have four."""
NUMBERS = (1, 99)
INTERMEDIATES = (1, 999)
TARGETS = (10, 100)
MAX_DRAWS = 10_000
"""Draws without a new puzzle after which the generator gives up."""

BUNDLED = "bundled"
"""Stands for the files of the package among the excluded ones."""
_DATA = Path(__file__).parent.parent / "bundled" / "data"

_Term = tuple[Fraction, str]
_Key = tuple[tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Reach the target with every number used once."""

    numbers: tuple[int, ...]
    target: int
    solution: str

    @property
    def key(self) -> _Key:
        """The multiset of numbers and the target; equal puzzles have equal keys."""
        return tuple(sorted(self.numbers)), self.target


def generate_puzzles(
    seed: int, count: int, *, exclude: Collection[_Key] = ()
) -> tuple[Puzzle, ...]:
    """Return distinct, solvable puzzles; the first n do not depend on `count`."""
    generator = random.Random(seed)
    taken = set(exclude)
    puzzles = []
    for _ in range(count):
        size = 3 if generator.random() < THREE_NUMBERS else 4
        drawn = (_draw(generator, size) for _ in range(MAX_DRAWS))
        puzzle = next((each for each in drawn if each and each.key not in taken), None)
        if puzzle is None:
            raise InvalidInputError("there are too few puzzles left", field="count")
        taken.add(puzzle.key)
        puzzles.append(puzzle)
    return tuple(puzzles)


def solve(numbers: Sequence[int], target: int) -> str | None:
    """Return an expression of the target that uses every number once; None without one."""
    return _search(tuple((Fraction(n), str(n)) for n in numbers), Fraction(target))


def _search(terms: tuple[_Term, ...], target: Fraction) -> str | None:
    if len(terms) == 1:
        value, expression = terms[0]
        return expression if value == target else None
    for i, j in combinations(range(len(terms)), 2):
        others = tuple(term for k, term in enumerate(terms) if k not in {i, j})
        for combined in _combine(terms[i], terms[j]):
            solution = _search((*others, combined), target)
            if solution is not None:
                return solution
    return None


def _combine(left: _Term, right: _Term) -> Iterator[_Term]:
    (a, x), (b, y) = left, right
    yield a + b, f"({x} + {y})"
    yield a - b, f"({x} - {y})"
    yield b - a, f"({y} - {x})"
    yield a * b, f"({x} * {y})"
    if b:
        yield a / b, f"({x} / {y})"
    if a:
        yield b / a, f"({y} / {x})"


def _draw(generator: random.Random, size: int) -> Puzzle | None:
    """Apply random operations to random numbers; return None if a value leaves its range."""
    numbers = tuple(generator.randint(*NUMBERS) for _ in range(size))
    value, *others = generator.sample(numbers, size)
    for number in others:
        # Sums are three times as likely as products.
        symbol = generator.choice("+++---*" + ("/" if value % number == 0 else ""))
        results = {"+": value + number, "-": value - number, "*": value * number}
        value = results[symbol] if symbol in results else value // number
        if not _within(INTERMEDIATES, value):
            return None
    solution = solve(numbers, value) if _within(TARGETS, value) else None
    return None if solution is None else Puzzle(numbers, value, solution)


def _within(bounds: tuple[int, int], value: int) -> bool:
    return bounds[0] <= value <= bounds[1]


def _read_keys(paths: Sequence[Path]) -> frozenset[_Key]:
    bundled = sorted(_DATA.glob("countdown-*.jsonl")) if Path(BUNDLED) in paths else []
    files = [*(path for path in paths if path != Path(BUNDLED)), *bundled]
    rows = (json.loads(line) for path in files for line in path.read_text().splitlines())
    return frozenset((tuple(sorted(row["numbers"])), row["target"]) for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a file of puzzles; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m modnorm.tasks.puzzles")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--exclude", type=Path, nargs="*", default=[])
    options = parser.parse_args(arguments)
    puzzles = generate_puzzles(options.seed, options.count, exclude=_read_keys(options.exclude))
    lines = (
        json.dumps({"numbers": p.numbers, "target": p.target, "solution": p.solution})
        for p in puzzles
    )
    options.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
