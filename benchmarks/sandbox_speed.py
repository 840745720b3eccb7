"""MBPP's reference programs in the sandbox: passed ones, and programs per second.

    python -m benchmarks.sandbox_speed FOLDER [--threads 2] [--repeat 1]

FOLDER holds MBPP rows as .jsonl files (fields task_id, code, test_list, test_setup_code).
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from modnorm.sandbox import Program, ProgramOutcome, Sandbox, Verdict
from modnorm.sandbox.planning import plan_test


def _programs(folder: Path) -> dict[int, Program]:
    """Read the rows; set-up code follows the solution, whose classes it uses."""
    rows = [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return {
        row["task_id"]: Program((row["code"], row["test_setup_code"]), row["test_list"])
        for row in rows
    }


def _report(outcomes: dict[int, ProgramOutcome], programs: dict[int, Program]) -> None:
    print(dict(Counter(outcome.verdict.value for outcome in outcomes.values())))
    tests = [plan_test(test) for program in programs.values() for test in program.tests]
    print(f"{len(tests)} tests, {sum(not test.judged for test in tests)} self-reported")
    for task, outcome in outcomes.items():
        if outcome.verdict is not Verdict.PASSED:
            print(f"task {task}: {outcome.verdict}: {outcome.detail}")
    slowest = sorted(outcomes, key=lambda task: -outcomes[task].wall_seconds)[:5]
    print("slowest:", {task: f"{outcomes[task].wall_seconds:.2f} s" for task in slowest})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and print results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args(arguments)
    programs = _programs(options.folder)
    if not programs:
        parser.error(f"there are no rows, as .jsonl files, in {options.folder}")
    with Sandbox() as sandbox, ThreadPoolExecutor(options.threads) as pool:
        print(sandbox.check_health())
        for _ in range(options.repeat):
            began = time.perf_counter()
            outcomes = dict(
                zip(programs, pool.map(sandbox.execute, programs.values()), strict=True)
            )
            seconds = time.perf_counter() - began
            print(f"{len(programs)} programs, {seconds:.2f} s, {len(programs) / seconds:.1f} /s")
    _report(outcomes, programs)


if __name__ == "__main__":
    main()
