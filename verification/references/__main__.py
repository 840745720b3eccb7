"""Judges real rows with every scorer: references should count, changed answers should not.

    python -m verification.references FOLDER [--task NAME ...] [--threads 2] [--explain]

FOLDER holds `TASK/*.jsonl` (or .json, .parquet, .csv) with the data sets' own columns. Prints a
table; `--explain` prints each exception. Known exceptions are in docs/scorers.md and
docs/measurements.md: the published scorers compare text and numbers, and some changed answers are
right (`-0`, another expression of the same value, another unit).
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from modnorm.sandbox import Sandbox
from modnorm.tasks import Judgement, Task, get_task
from modnorm.tasks.registry import runs_programs, scorer_names
from modnorm.tasks.row_files import SUFFIXES, RawRow, read_file
from verification.references.statements import Statement, state, tasks

UNLICENSED = "rocstories"
"""The task whose rows may be missing, since they lack an open licence."""


@dataclass(frozen=True, slots=True)
class Result:
    """A statement and its judgement."""

    statement: Statement
    judgement: Judgement

    @property
    def counts(self) -> bool:
        """Whether the scorer rewards it or judges its vote as correct; for a reference, both."""
        signs = (self.judgement.correct, self.judgement.reward >= 1)
        return all(signs) if self.statement.wording.right else any(signs)

    def __str__(self) -> str:
        statement, judgement = self.statement, self.judgement
        said, truth = (text[:100] for text in (statement.wording.answer, statement.truth))
        return (
            f"{statement.place} (id {statement.row_id}), {statement.wording.name}: {said!r} for "
            f"{truth!r}: reward {judgement.reward:g}, correct {judgement.correct}"
        )


def read_rows(folder: Path) -> list[RawRow]:
    """Return the rows of all files in a folder; empty if the folder is missing."""
    paths = sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES)
    return [
        (f"{path.name}, {place}", raw)
        for path in paths
        for place, raw in read_file(path, str(path), field="folder")
    ]


def check(task: Task, rows: Sequence[RawRow], threads: int) -> list[Result]:
    """Judge all statements of a task's rows in order, several programs concurrently."""

    def judge(statement: Statement) -> Result:
        row = task.parse(statement.raw)
        return Result(statement, task.judge(row, statement.wording.completion))

    statements = state(task.name, rows)
    if not runs_programs(task.name):
        return list(map(judge, statements))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(judge, statements))


def table(scorer: str, results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of a scorer by wording, references first."""
    wordings: dict[tuple[str, bool], list[Result]] = defaultdict(list)
    for result in results:
        wordings[result.statement.wording.name, result.statement.wording.right].append(result)
    for (name, right), group in sorted(wordings.items(), key=lambda item: not item[0][1]):
        counted = sum(result.counts for result in group)
        must = len(group) if right else 0
        yield f"| `{scorer}` | {name} | {len(group):,} | {counted:,} | {must:,} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge with all scorers of the requested tasks and print; return 1 if rows are missing."""
    parser = argparse.ArgumentParser(prog="python -m verification.references")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=tasks(), nargs="+", default=tasks())
    parser.add_argument("--threads", type=int, default=2, help="programs to run concurrently")
    parser.add_argument("--explain", action="store_true", help="print every exception")
    options = parser.parse_args(arguments)
    lines = [
        "| scorer | statement | answers | count as right | must |",
        "|---|---|---:|---:|---:|",
    ]
    missing = 0
    with Sandbox() as sandbox:
        for name in options.task:
            rows = read_rows(options.folder / name)
            if not rows:
                print(f"{options.folder / name} has no rows", file=sys.stderr)
                missing += name != UNLICENSED
            for scorer in scorer_names(name) if rows else ():
                task = get_task(name, scorer=scorer, sandbox=sandbox)
                results = check(task, rows, options.threads)
                if options.explain:
                    excepted = (
                        one for one in results if one.counts != one.statement.wording.right
                    )
                    print(*(f"{task.scorer}: {one}" for one in excepted), sep="\n")
                lines += table(scorer, results)
    print(*lines, sep="\n")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
