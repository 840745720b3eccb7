"""Iterative distillation: base, best expert, vote of ten and the student after each round.

    python -m benchmarks.distillation OUT [--methods modular_norm randopt] [--seeds 42 43 44]
        [--rounds 4] [--puzzles 2000] [--engine vllm] [--processes 6] [--gpus 2] [--limit 600]

Each method and seed is one `modnorm run` of the bundled model on Countdown, at the demo's scale.
Its training rows are puzzles from the generator that the bundled model was trained with; a puzzle
of another split is left out. `--processes` runs are under way at once, on `--gpus` devices in
turn. Several processes need `OMP_NUM_THREADS=1` and a share of a GPU's memory each:
`MODNORM_GPU_MEMORY_UTILIZATION=0.1` for three a GPU, which leaves room for their trainings.

`--model DIR --rows FOLDER` takes another model and its rows, as `benchmarks.worked_answers.train`
writes them, with `--task`, `--radius`, `--sigma` and the same `--events`.

Each finished run adds a line to `OUT/runs.jsonl`. The same command resumes; `--table` only prints.
The share of the gain is the mean over seeds of `(model - base) / (vote - base)`, by the first
round's vote.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from statistics import mean, stdev

import yaml

from benchmarks.worked_answers import texts
from modnorm.analysis.uncertainty import accuracy_interval
from modnorm.bundled import train_tiny

METHODS = ("modular_norm", "randopt")
SPLITS = ("selection", "development", "heldout")
VOTERS = 10
PUZZLE_SEED = 20_261_125
_RUNNING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the table."""

    method: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its directory."""
        return f"{self.method}-{self.seed}"


@dataclass(frozen=True, slots=True)
class DistilledRun:
    """The held-out metrics of a run, as fractions."""

    method: str
    seed: int
    rows: int
    """Held-out rows."""
    base: float
    expert: float
    """Rank 1 of the first round's search."""
    votes: Sequence[float]
    """Of each round's search."""
    students: Sequence[float]
    """After each round."""
    development: Sequence[float]
    """On the development rows: the base, then each student."""
    examples: Sequence[int]
    """Examples of each round's dataset."""
    answers: Sequence[int]
    """Generated in each round."""
    flops: Sequence[float]
    """Of each round's training."""
    seconds: float


def write_puzzles(path: Path, number: int, others: Sequence[Path]) -> None:
    """Write training rows that share no puzzle with other files."""
    taken = {_key(json.loads(line)) for file in others for line in file.read_text().splitlines()}
    generator = random.Random(PUZZLE_SEED)
    lines: list[str] = []
    while len(lines) < number:
        # The script beside the model has no types.
        numbers, target, _, _ = train_tiny.make_cd(generator)  # type: ignore[no-untyped-call]
        row = {"numbers": numbers, "target": target}
        if _key(row) not in taken:
            taken.add(_key(row))
            lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")


def _key(row: Mapping[str, object]) -> str:
    return json.dumps([row["numbers"], row["target"]])


def training_rows(options: argparse.Namespace) -> Path:
    """Return the file of training rows, written at the first call."""
    path: Path = options.out / "puzzles.jsonl"
    if path.exists():
        return path
    if options.rows is None:
        bundled = Path(train_tiny.__file__).parent / "data"
        others = [bundled / f"countdown-{split}.jsonl" for split in SPLITS]
        write_puzzles(path, options.puzzles, others)
    else:
        path.write_text("".join(f"{line}\n" for line in _worked_rows(options)))
    return path


def _worked_rows(options: argparse.Namespace) -> list[str]:
    """Return generated rows that are in no other split of the folder."""
    files = [options.rows / f"{options.task}-{split}.jsonl" for split in SPLITS]
    taken = {line for file in files for line in file.read_text().splitlines()}
    number = options.puzzles + len(taken)
    rows = texts.rows(options.task, PUZZLE_SEED, number, tuple(options.events))
    return [line for line in map(json.dumps, rows) if line not in taken][: options.puzzles]


def make_spec(cell: Cell, options: argparse.Namespace) -> dict[str, object]:
    """Return the spec of a run."""
    splits = {split: _split(options, split) for split in SPLITS}
    scale = options.radius if cell.method == "modular_norm" else options.sigma
    return {
        "name": f"distil {cell.name}",
        "model": options.model,
        "task": {
            "name": options.task,
            "selection": splits["selection"],
            "heldout": splits["heldout"],
            "max_tokens": options.max_tokens,
        },
        "method": {"name": cell.method, "radius": scale},
        "population": {
            "size": options.population,
            "ensemble_sizes": sorted({1, min(VOTERS, options.population)}),
            "seed": cell.seed,
            "statistics": "full",
        },
        "calibration": {"examples": 16},
        "engine": {"name": options.engine, "max_num_seqs": options.sequences},
        "distillation": {
            "rounds": options.rounds,
            "rows": {"source": str(training_rows(options).resolve())},
            "development": splits["development"],
            "search_around": options.search_around,
            "harvest": {
                "temperature": options.temperature,
                "samples": options.samples,
                "keep": options.keep,
                "accumulate": True,
            },
            "training": {
                "method": options.training,
                **({"rank": options.rank} if options.training == "lora" else {}),
                "learning_rate": options.learning_rate,
                "batch_size": options.batch_size,
                "epochs": options.epochs,
            },
        },
    }


def _split(options: argparse.Namespace, split: str) -> dict[str, object]:
    if options.rows is None:
        source = f"bundled:countdown-{split}"
    else:
        source = str((options.rows / f"{options.task}-{split}.jsonl").resolve())
    return {"source": source, "limit": getattr(options, split)}


def run(cell: Cell, device: int, options: argparse.Namespace) -> DistilledRun:
    """Run one cell on a device, in a process of its own."""
    directory: Path = options.out / cell.name
    spec = options.out / f"{cell.name}.yaml"
    spec.write_text(yaml.safe_dump(make_spec(cell, options), sort_keys=False))
    begin = time.monotonic()
    command = [sys.executable, "-m", "modnorm", "run", str(spec), "--out", str(directory)]
    if options.gpus:
        # Labs with one cache load their engines in turn, which only those of one GPU need.
        cache = (options.out / f"cache-{device}").resolve()
        changes = [f"CUDA_VISIBLE_DEVICES={device}", f"MODNORM_CACHE_DIR={cache}"]
        command = ["env", *changes, *command]
    with (options.out / f"{cell.name}.log").open("ab") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log, timeout=options.limit)
    return read_outcome(cell, directory, options.heldout, time.monotonic() - begin)


def read_outcome(cell: Cell, directory: Path, rows: int, seconds: float) -> DistilledRun:
    """Return the metrics of a finished distillation with some held-out rows."""
    document = json.loads((directory / "distillation.json").read_text())
    base, *rounds = document["rounds"]
    searches = [one["search"] for one in rounds]
    return DistilledRun(
        method=cell.method,
        seed=cell.seed,
        rows=rows,
        base=base["heldout"]["metric"],
        expert=searches[0]["best_expert"]["metric"],
        votes=[one["vote"]["metric"] for one in searches],
        students=[one["heldout"]["metric"] for one in rounds],
        development=[one["development"]["metric"] for one in (base, *rounds)],
        examples=[int(one["harvest"]["dataset_examples"]) for one in rounds],
        answers=[int(one["budget"]["answers"]) for one in rounds],
        flops=[float(one["budget"]["training_flops"]) for one in rounds],
        seconds=seconds,
    )


def run_all(options: argparse.Namespace) -> None:
    """Run the missing cells, several at once; a failed one does not end the others."""
    finished = {(one.method, one.seed) for one in read_outcomes(options.out)}
    cells = [Cell(method, seed) for seed in options.seeds for method in options.methods]
    missing = [cell for cell in cells if (cell.method, cell.seed) not in finished]
    training_rows(options)
    turns = count()

    def work(cell: Cell) -> None:
        try:
            outcome = run(cell, next(turns) % max(1, options.gpus), options)
        except subprocess.SubprocessError as error:
            print(f"{cell.name}, see its log: {error}", file=sys.stderr)
            return
        with _RUNNING, (options.out / "runs.jsonl").open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")
        print(f"{cell.name}: {outcome.seconds:.0f} s", file=sys.stderr)

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(work, missing))


def read_outcomes(out: Path) -> list[DistilledRun]:
    """Return the outcomes so far."""
    file = out / "runs.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [DistilledRun(**json.loads(line)) for line in lines]


def table(outcomes: Sequence[DistilledRun]) -> Iterator[str]:
    """Yield the lines of the table in Markdown, in per cent."""
    yield "| method | model | seeds | held-out | 95 % interval of a run | share of the gain |"
    yield "|---|---|---:|---:|---:|---:|"
    for method in METHODS:
        runs = [one for one in outcomes if one.method == method]
        for name, values in _models(runs):
            shares = [
                share
                for one, value in zip(runs, values, strict=True)
                if (share := _share(one, value)) is not None
            ]
            cells = (method, name, str(len(runs)), spread(values), _interval(runs, values))
            yield f"| {' | '.join(cells)} | {spread(shares) if shares else '-'} |"
    for method in METHODS:
        yield from _effect_of_rounds([one for one in outcomes if one.method == method])


def _effect_of_rounds(runs: Sequence[DistilledRun]) -> Iterator[str]:
    """Yield a line on the last student less the first of each seed, and the best one likewise."""
    if not runs or min(len(one.students) for one in runs) < 2:
        return
    pairs = {
        "last": [one.students[-1] - one.students[0] for one in runs],
        "best by development": [_chosen(one) - one.students[0] for one in runs],
    }
    words = "; ".join(f"{name}: {spread(values)}" for name, values in pairs.items())
    yield ""
    yield f"{runs[0].method}, points of a later student over that of round 1: {words}"


def _models(runs: Sequence[DistilledRun]) -> Iterator[tuple[str, list[float]]]:
    if not runs:
        return
    yield "base", [one.base for one in runs]
    yield "best expert", [one.expert for one in runs]
    for index in range(min(len(one.students) for one in runs)):
        yield f"vote of {VOTERS}, round {index + 1}", [one.votes[index] for one in runs]
        yield f"student, round {index + 1}", [one.students[index] for one in runs]
    yield "student, best by development", [_chosen(one) for one in runs]


def _chosen(run: DistilledRun) -> float:
    """Return the metric of the first student that is best on the development rows."""
    pairs = zip(run.development[1:], run.students, strict=True)
    return max(pairs, key=lambda pair: pair[0])[1]


def _share(run: DistilledRun, value: float) -> float | None:
    gain = run.votes[0] - run.base
    return (value - run.base) / gain if gain > 0 else None


def spread(values: Sequence[float]) -> str:
    """Return mean and sample SD in per cent."""
    deviation = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.1f}{deviation}"


def _interval(runs: Sequence[DistilledRun], values: Sequence[float]) -> str:
    """Return the 95 % interval of one run with the mean metric, to the nearest held-out row."""
    rows = runs[0].rows
    interval = accuracy_interval(round(mean(values) * rows) / rows, rows)
    return f"{100 * interval.lower:.1f} to {100 * interval.upper:.1f}" if interval else "-"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(42, 43, 44))
    parser.add_argument("--model", default="tiny-thicket")
    parser.add_argument("--task", default="countdown")
    parser.add_argument("--rows", type=Path, help="folder of another model's rows")
    parser.add_argument("--radius", type=float, default=0.64, help="of modular_norm")
    parser.add_argument("--sigma", type=float, default=0.016, help="of randopt")
    parser.add_argument("--population", type=int, default=20)
    parser.add_argument("--selection", type=int, default=64, help="selection rows")
    parser.add_argument("--development", type=int, default=100, help="development rows")
    parser.add_argument("--heldout", type=int, default=300, help="held-out rows")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--search-around", choices=("student", "base"), default="student")
    parser.add_argument("--puzzles", type=int, default=2000, help="training rows")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--keep", type=int, default=2, help="examples of a row")
    parser.add_argument("--training", choices=("lora", "full"), default="full")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--sequences", type=int, help="decoded at once")
    parser.add_argument(
        "--events", type=int, nargs=2, default=texts.EVENTS, help="of a worked word problem"
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0, help="devices; 0 leaves them to the shell")
    parser.add_argument("--limit", type=float, help="seconds after which a run is killed")
    parser.add_argument("--table", action="store_true", help="print the table and run nothing")
    return parser.parse_args()


def main() -> int:
    """Run the missing cells and print the table."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.table:
        run_all(options)
    print("\n".join(table(read_outcomes(options.out))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
