"""Checks scorers on real rows: references must count, changed answers must not.

    python -m verification.references FOLDER [--task NAME ...] [--threads 2] [--explain]

FOLDER holds `TASK/*.jsonl` (or .json, .parquet, .csv) with the data sets' own columns. Prints a
table and the reasons of exceptions; `--explain` prints each exception. The exit code is 1 if an
exception has no reason, or if a reason is no longer needed.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from modnorm.sandbox import Sandbox
from modnorm.tasks import Judgement, Task, get_task
from modnorm.tasks.registry import runs_programs, scorer_names
from modnorm.tasks.row_files import SUFFIXES, RawRow, read_file
from verification.references.explanations import EXPLANATIONS, Explanation
from verification.references.statements import Statement, state, tasks

UNLICENSED = "rocstories"
"""The task whose rows may be missing, since they lack an open licence."""
HEAD = (
    "| scorer | statement | answers | count as right | must | explained | unexplained |\n"
    "|---|---|---:|---:|---:|---:|---:|"
)


@dataclass(frozen=True, slots=True)
class Result:
    """A statement and its judgement."""

    statement: Statement
    judgement: Judgement
    reason: Explanation | None
    """Why its score differs from the expected one; None if it does not or nobody knows."""

    @property
    def counts(self) -> bool:
        """Whether the scorer rewards it or judges its vote as correct; for a reference, both."""
        signs = (self.judgement.correct, self.judgement.reward >= 1)
        return all(signs) if self.statement.wording.right else any(signs)

    @property
    def excepted(self) -> bool:
        """Whether its score differs from the expected one."""
        return self.counts != self.statement.wording.right

    @property
    def unexplained(self) -> bool:
        """Whether it differs without a reason."""
        return self.excepted and self.reason is None


def read_rows(folder: Path) -> list[RawRow]:
    """Return the rows of all files in a folder; empty if the folder is missing."""
    paths = sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES)
    return [
        (f"{path.name}, {place}", raw)
        for path in paths
        for place, raw in read_file(path, str(path), field="folder")
    ]


def check(task: Task, rows: Sequence[RawRow], threads: int) -> list[Result]:
    """Judge all statements of a task's rows, references first; print the speed."""
    statements, results = list(state(task.name, rows)), list[Result]()
    many = threads if runs_programs(task.name) else 1
    for right, kind in ((True, "references"), (False, "wrong answers")):
        chosen = [each for each in statements if each.wording.right == right]
        began = time.perf_counter()
        with ThreadPoolExecutor(many) as pool:
            results += pool.map(partial(_result, task), chosen)
        seconds = time.perf_counter() - began
        rate = f"{len(chosen) / seconds:,.0f} a second"
        print(f"{task.scorer}: {len(chosen):,} {kind} in {seconds:.1f} s, {rate}", flush=True)
    return results


def _result(task: Task, statement: Statement) -> Result:
    judgement = task.judge(task.parse(statement.raw), statement.wording.completion)
    result = Result(statement, judgement, None)
    if not result.excepted:
        return result
    reasons = (each for each in EXPLANATIONS if each.explains(task.name, task.scorer, statement))
    return Result(statement, judgement, next(reasons, None))


def _lines(scorer: str, results: Sequence[Result]) -> Iterator[str]:
    frame = pd.DataFrame(
        {
            "wording": each.statement.wording.name,
            "right": each.statement.wording.right,
            "counts": each.counts,
            "explained": each.excepted and not each.unexplained,
            "unexplained": each.unexplained,
        }
        for each in results
    )
    for (right, name), group in frame.groupby(["right", "wording"], sort=False):
        counted, explained, unexplained = group[["counts", "explained", "unexplained"]].sum()
        must = len(group) if right else 0
        yield (
            f"| `{scorer}` | {name} | {len(group):,} | {counted:,} | {must:,} "
            f"| {explained:,} | {unexplained:,} |"
        )


def _show(result: Result) -> str:
    statement, judgement = result.statement, result.judgement
    reason = "NO REASON" if result.reason is None else result.reason.reason
    said, truth = (text[:100] for text in (statement.wording.answer, statement.truth))
    return (
        f"{statement.place} (id {statement.row_id}), {statement.wording.name}: {said!r} for "
        f"{truth!r}: reward {judgement.reward:g}, correct {judgement.correct}: {reason}"
    )


def _stale(task: Task, results: Sequence[Result]) -> Iterator[str]:
    """Yield unneeded explanations: reasons without a case, and listed rows without one."""
    present = {result.statement.row_id for result in results}
    for explanation in EXPLANATIONS:
        if explanation.concerns(task.name, task.scorer):
            rows = {each.statement.row_id for each in results if each.reason is explanation}
            if not rows:
                yield f"{task.scorer}: no longer needed: {explanation.reason}"
            for row in sorted(((explanation.rows or rows) & present) - rows):
                yield f"{task.scorer}: row {row} is no longer one: {explanation.reason}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all scorers of the requested tasks and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m verification.references")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=tasks(), nargs="+", default=tasks())
    parser.add_argument("--threads", type=int, default=2, help="programs to run concurrently")
    parser.add_argument("--explain", action="store_true", help="print every exception")
    options = parser.parse_args(arguments)
    table, faults = [HEAD], list[str]()
    with Sandbox() as sandbox:
        for name in options.task:
            rows = read_rows(options.folder / name)
            if not rows and name == UNLICENSED:
                table.append(f"| `{name}` | no rows in the folder | | | | | |")
            elif not rows:
                faults.append(f"{options.folder / name} has no rows")
            for scorer in scorer_names(name) if rows else ():
                task = get_task(name, scorer=scorer, sandbox=sandbox)
                results = check(task, rows, options.threads)
                for reason, times in Counter(
                    each.reason for each in results if each.reason
                ).items():
                    print(f"{scorer}: {times:,} times: {reason.reason}")
                for each in results if options.explain else ():
                    if each.excepted:
                        print(f"{scorer}: {_show(each)}")
                table += _lines(scorer, results)
                faults += [*_stale(task, results)]
                faults += [_show(result) for result in results if result.unexplained]
    print(*table, "", *faults or ["Everything is explained."], sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
