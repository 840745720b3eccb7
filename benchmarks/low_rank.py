"""Low-rank noise against noise of full rank, on the bundled model: the vote on Countdown.

    python -m benchmarks.low_rank --out runs/low-rank [--data countdown.json] [--processes 12]
        [--methods modular_norm randopt] [--ranks 1 4 16 64 full] [--seeds 42 43 44]
        [--radii 0.32 0.64 1.28 2.56] [--sigmas 0.004 0.008 0.016 0.032] [--engine transformers]
        [--target-modules all all-linear]

Each method and rank is tuned alone: the scale whose vote of 8 of 32 candidates is best on the
development rows, on ties the smaller one. Then each seed draws 64 candidates with that scale, and
ensembles of K = 1, 5, 10 and 25 vote on the held-out rows. The output is a table of means and
sample SDs. Each process has a lab and an engine of its own.

Several processes need `OMP_NUM_THREADS=1`, and a share of the memory of a GPU each:
`MODNORM_GPU_MEMORY_UTILIZATION=0.07` for 12 of them.

`--target-modules all-linear` leaves embeddings and head alone, as adapters need. Full rank has
no such rows. Both values give both rows for each rank.

`cells.jsonl` in the folder gets a line for each finished experiment. The same command resumes,
and `--table` only prints. After `--seconds` no new experiment begins.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty
from statistics import mean, stdev
from typing import TYPE_CHECKING, get_args

from modnorm.spec import ExperimentSpec, TargetModules, parse_spec

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

METHODS = ("modular_norm", "randopt")
RANKS = (1, 4, 16, 64, None)
SIZES = (1, 5, 10, 25)
TUNED_ON, TUNED_SIZE, TUNING_SEED = 32, 8, 41
"""N, K and population seed of the experiments that choose a scale."""
_OFFSETS = {"selection": 0, "development": 1000, "heldout": 200}
"""First rows of the splits in a file of `--data`."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One row of the table."""

    method: str
    rank: int | None
    target_modules: TargetModules = "all"

    @property
    def label(self) -> str:
        """Rank and target modules in words."""
        rank = "full" if self.rank is None else str(self.rank)
        return rank if self.target_modules == "all" else f"{rank} {self.target_modules}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One experiment: a trial of a scale, or the test of the chosen scale."""

    condition: Condition
    is_trial: bool
    radius: float
    seed: int
    spec: ExperimentSpec

    @property
    def evaluations(self) -> int:
        """Model-prompt pairs of candidates and experts if nothing is skipped."""
        population, task = self.spec.population, self.spec.task
        experts = population.ensemble_sizes[-1]
        search = population.size * (task.selection.limit or 0)
        return search + experts * (task.heldout.limit or 0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a cell."""

    digest: str
    """Digest of its spec."""
    metrics: Mapping[str, float]
    """Metric of the vote by K."""
    base: float
    seconds: float


def rows(options: argparse.Namespace) -> Mapping[str, Mapping[str, object]]:
    """Return the splits."""
    if options.data is None:
        splits: dict[str, dict[str, object]] = {
            name: {"source": f"bundled:countdown-{name}"} for name in _OFFSETS
        }
    else:
        splits = {
            name: {"source": str(options.data.resolve()), "offset": offset}
            for name, offset in _OFFSETS.items()
        }
    for name, split in splits.items():
        split["limit"] = getattr(options, name)
    return splits


def make_cell(
    condition: Condition, *, radius: float, seed: int, is_trial: bool, options: argparse.Namespace
) -> Cell:
    """Return the experiment of a scale and a seed; a trial votes on the development rows."""
    splits = rows(options)
    size = min(TUNED_ON, options.population) if is_trial else options.population
    sizes = [min(TUNED_SIZE, size)] if is_trial else [k for k in SIZES if k <= size]
    method = {
        "name": condition.method,
        "radius": radius,
        "rank": condition.rank,
        "target_modules": condition.target_modules,
    }
    spec = parse_spec(
        {
            "name": f"{condition.method} rank {condition.label} scale {radius:g} seed {seed}",
            "model": "tiny-thicket",
            "task": {
                "name": "countdown",
                "selection": splits["selection"],
                "heldout": splits["development" if is_trial else "heldout"],
                "max_tokens": options.max_tokens,
            },
            "method": method,
            "population": {"size": size, "ensemble_sizes": sizes, "seed": seed},
            "calibration": {"examples": 16},
            "engine": options.engine,
        }
    )
    return Cell(condition, is_trial, radius, seed, spec)


class Study:
    """The cells of the table and their outcomes so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._file: Path = options.out / "cells.jsonl"
        self._outcomes = {one.digest: one for one in self._read()}
        self.conditions = [
            Condition(method, rank, modules)
            for method in options.methods
            for rank in options.ranks
            for modules in options.target_modules
            if rank is not None or modules == "all"
        ]

    def trials(self, condition: Condition) -> list[Cell]:
        """Return the trials that choose the scale of a condition."""
        isotropic = condition.method == "randopt"
        grid = self._options.sigmas if isotropic else self._options.radii
        return [self._cell(condition, radius, TUNING_SEED, is_trial=True) for radius in grid]

    def tests(self, condition: Condition) -> list[Cell]:
        """Return the experiments with the chosen scale; none while trials are missing."""
        radius = self.chosen(condition)
        if radius is None:
            return []
        return [
            self._cell(condition, radius, seed, is_trial=False) for seed in self._options.seeds
        ]

    def chosen(self, condition: Condition) -> float | None:
        """Return the scale with the best vote on the development rows."""
        trials = [(cell.radius, self.outcome(cell)) for cell in self.trials(condition)]
        votes = [(max(one.metrics.values()), -radius) for radius, one in trials if one]
        return -max(votes)[1] if len(votes) == len(trials) else None

    def outcome(self, cell: Cell) -> Outcome | None:
        """Return the outcome of a cell; None if it is not finished."""
        return self._outcomes.get(cell.spec.digest)

    def counts(self) -> tuple[int, int]:
        """Return the number of all cells, and of their evaluations if nothing is skipped."""
        tested = [
            self._cell(condition, 1.0, seed, is_trial=False)
            for condition in self.conditions
            for seed in self._options.seeds
        ]
        cells = [cell for one in self.conditions for cell in self.trials(one)] + tested
        return len(cells), sum(cell.evaluations for cell in cells)

    @property
    def finished(self) -> int:
        """Number of outcomes in the file."""
        return len(self._outcomes)

    def add(self, outcome: Outcome) -> None:
        """Record an outcome in memory and in the file."""
        self._outcomes[outcome.digest] = outcome
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(asdict(outcome)) + "\n")

    def missing(self) -> Iterator[Cell]:
        """Yield the cells that can run now: trials, then the tests seed by seed."""
        trials = [cell for one in self.conditions for cell in self.trials(one)]
        tests = [cell for one in self.conditions for cell in self.tests(one)]
        tests.sort(key=lambda cell: self._options.seeds.index(cell.seed))
        yield from (cell for cell in (*trials, *tests) if self.outcome(cell) is None)

    def _cell(self, condition: Condition, radius: float, seed: int, *, is_trial: bool) -> Cell:
        return make_cell(
            condition, radius=radius, seed=seed, is_trial=is_trial, options=self._options
        )

    def _read(self) -> Iterator[Outcome]:
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                yield Outcome(**json.loads(line))


def work(home: Path, tasks: "Queue[ExperimentSpec | None]", results: "Queue[Outcome]") -> None:
    """Run experiments on a lab of this process until a task is None."""
    from modnorm.cli.experiment import carry_out  # noqa: PLC0415 - only in processes that work
    from modnorm.client.embedded import embedded_client  # noqa: PLC0415 - loads the services
    from modnorm.client.rundir import hold  # noqa: PLC0415 - only in processes that work
    from modnorm.client.settings import ClientSettings  # noqa: PLC0415 - as above

    with hold(home), embedded_client(home, ClientSettings()) as client:
        for spec in iter(tasks.get, None):
            begin = time.monotonic()
            ended = carry_out(client, spec, quiet=True)
            results.put(
                Outcome(
                    digest=spec.digest,
                    metrics={str(one.ensemble_size): one.metric for one in ended.ensembles},
                    base=ended.base.heldout_metric,
                    seconds=time.monotonic() - begin,
                )
            )


class Workers:
    """Processes that run experiments, each on a lab of its own.

    Args:
        homes: A folder for each process.
    """

    def __init__(self, homes: Sequence[Path]) -> None:
        context = multiprocessing.get_context("spawn")
        self._tasks: Queue[ExperimentSpec | None] = context.Queue()
        self._results: Queue[Outcome] = context.Queue()
        self._processes = [
            context.Process(target=work, args=(home, self._tasks, self._results)) for home in homes
        ]
        for process in self._processes:
            process.start()

    def submit(self, spec: ExperimentSpec) -> None:
        """Let the next free process run an experiment."""
        self._tasks.put(spec)

    def next_outcome(self) -> Outcome:
        """Wait for an outcome.

        Raises:
            SystemExit: a process ended with an error.
        """
        while True:
            try:
                return self._results.get(timeout=5)
            except Empty:
                if all(process.is_alive() for process in self._processes):
                    continue
            for process in self._processes:
                process.terminate()
            sys.exit("a process ended with an error, which stands above; the command resumes")

    def close(self) -> None:
        """Stop the processes after their last experiment."""
        for _ in self._processes:
            self._tasks.put(None)
        for process in self._processes:
            process.join()


def run(study: Study, options: argparse.Namespace) -> None:
    """Run the missing cells; a chosen scale is tested as soon as it is known.

    Raises:
        SystemExit: a process ended with an error.
    """
    folder, count = options.out / "labs", options.processes
    workers = Workers([folder / str(index) for index in range(count)])
    begin, pending = time.monotonic(), set[str]()
    while True:
        seconds = time.monotonic() - begin
        waiting = [cell.spec for cell in study.missing() if cell.spec.digest not in pending]
        # No queue beyond one experiment a process, so that the limit of time stops the rest.
        for spec in waiting[: count - len(pending)] if seconds < options.seconds else ():
            pending.add(spec.digest)
            workers.submit(spec)
        if not pending:
            break
        outcome = workers.next_outcome()
        pending.remove(outcome.digest)
        study.add(outcome)
        seconds = time.monotonic() - begin
        print(f"{seconds:6.0f} s  {study.finished} experiments finished", file=sys.stderr)
    workers.close()


def table(study: Study, sizes: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table in Markdown, in per cent."""
    yield f"| method | rank | scale | seeds | {' | '.join(f'K = {size}' for size in sizes)} |"
    yield f"|---|---|---:|---:|{'---:|' * len(sizes)}"
    bases = []
    for condition in study.conditions:
        tests = [one for cell in study.tests(condition) if (one := study.outcome(cell))]
        bases += [one.base for one in tests]
        radius = study.chosen(condition)
        figures = [spread([one.metrics[str(size)] for one in tests]) for size in sizes]
        scale = "-" if radius is None else f"{radius:g}"
        head = f"{condition.method} | {condition.label} | {scale} | {len(tests)}"
        yield f"| {head} | {' | '.join(figures)} |"
    if bases:
        yield f"| base | | | | {' | '.join([f'{100 * bases[0]:.2f}'] * len(sizes))} |"


def spread(values: Sequence[float]) -> str:
    """Return mean and sample SD in per cent."""
    if not values:
        return "-"
    deviation = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.2f}{deviation}"


def _rank(text: str) -> int | None:
    return None if text == "full" else int(text)


def _options() -> argparse.Namespace:
    summary = __doc__.splitlines()[0] if __doc__ else None
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="public countdown.json; else bundled rows")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--ranks", nargs="+", type=_rank, default=RANKS)
    parser.add_argument(
        "--target-modules", nargs="+", choices=get_args(TargetModules), default=("all",)
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=(42, 43, 44))
    parser.add_argument("--radii", nargs="+", type=float, default=(0.32, 0.64, 1.28, 2.56))
    parser.add_argument("--sigmas", nargs="+", type=float, default=(0.004, 0.008, 0.016, 0.032))
    parser.add_argument("--population", type=int, default=64)
    parser.add_argument("--selection", type=int, default=100, help="selection rows")
    parser.add_argument("--development", type=int, default=100, help="development rows")
    parser.add_argument("--heldout", type=int, default=300, help="held-out rows")
    parser.add_argument("--max-tokens", type=int, default=192)
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--table", action="store_true", help="print the table and run nothing")
    return parser.parse_args()


def main() -> int:
    """Run the missing cells and print the table."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    study = Study(options)
    if not options.table:
        cells, evaluations = study.counts()
        print(f"{cells} experiments, at most {evaluations} evaluations", file=sys.stderr)
        run(study, options)
    print("\n".join(table(study, [size for size in SIZES if size <= options.population])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
