"""Whole runs with and without drafts from the population: time, experts and votes.

    python -m benchmarks.draft_runs OUT [--model tiny-thicket] [--task countdown] [--rows FOLDER]
        [--methods modular_norm randopt] [--radii 0.32 0.64 1.28] [--sigmas 0.006 0.012 0.024]
        [--population 32] [--experts 8] [--max-tokens 1024] [--engine vllm]

For each method `modnorm tune` chooses the scale by one seed, with drafts. Then `modnorm run` runs
the same spec without drafts, and with drafts in a new engine. Every candidate answers every row.
FOLDER holds the rows as `TASK-selection.jsonl` and so on, as `benchmarks.worked_answers.train`
writes them; without it the bundled rows are used. OUT/report.jsonl gets a line for each method:
seconds a candidate, and how many scores, votes and answers of both runs differ.

For answers that differ the report states the gap between the two greatest logits where they first
differ (`near_ties`). A small gap is a near-tie.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.near_ties import Key, gaps
from modnorm import load_run
from modnorm.analysis.answers import AnswerRecord
from modnorm.analysis.parquet_files import read_answers
from modnorm.analysis.run_files import read_timings
from modnorm.spec import ExperimentSpec, parse_spec

_Result = TypeVar("_Result")

NONE, POPULATION = "none", "population"
_TRACED = 24
"""Most answers of a run that are traced to a gap of logits."""
_TRIALS = (8, 3)
"""N and K of a trial of a scale."""


def main() -> int:
    """Tune, run and compare."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    given = options.scales or _in_child(_tune, options)
    scales = {method: given[method] for method in options.methods}
    _in_child(_run_all, options, NONE, scales)
    for method in options.methods:
        # A new engine: its table has no answers of another run.
        _in_child(_run_all, options, POPULATION, {method: scales[method]})
        line = json.dumps(compare(options, method, scales[method]))
        print(line, flush=True)
        with (options.out / "report.jsonl").open("a") as file:
            file.write(line + "\n")
    return 0


def _in_child(function: Callable[..., _Result], *arguments: object) -> _Result:
    """Call a function in a new process, whose end frees the GPU; return its result.

    The processes of a pool of `multiprocessing` may not start vLLM's worker.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _spec(
    options: argparse.Namespace, method: str, drafts: str, radius: float, size: int
) -> ExperimentSpec:
    """Return the spec of a run."""
    splits = {
        split: {"source": _source(options, split), "limit": limit}
        for split, limit in (("selection", options.selection), ("heldout", options.heldout))
    }
    engine = {"name": options.engine}
    if drafts != NONE:
        engine["drafts"] = drafts
    return parse_spec(
        {
            "name": f"{method} {drafts}",
            "model": options.model,
            "task": {"name": options.task, "max_tokens": options.max_tokens, **splits},
            "method": {"name": method, "radius": radius},
            "population": {
                "size": size,
                "ensemble_sizes": [one for one in (1, options.experts) if one <= size],
                "seed": 42,
                "statistics": "full",
            },
            "calibration": {"examples": 16},
            "engine": engine,
        }
    )


def _source(options: argparse.Namespace, split: str) -> str:
    if options.rows is None:
        return f"bundled:{options.task}-{split}"
    return str((options.rows / f"{options.task}-{split}.jsonl").resolve())


def _tune(options: argparse.Namespace) -> dict[str, float]:
    """Return the scale of each method that `modnorm tune` chooses."""
    from modnorm.cli.experiment import run_experiment  # noqa: PLC0415 - only in the child
    from modnorm.cli.tune_plan import plan_trials  # noqa: PLC0415 - as above
    from modnorm.cli.tune_work import trial_of  # noqa: PLC0415 - as above
    from modnorm.client.embedded import embedded_client  # noqa: PLC0415 - as above
    from modnorm.client.rundir import hold  # noqa: PLC0415 - as above
    from modnorm.client.settings import ClientSettings  # noqa: PLC0415 - as above
    from modnorm.client.tuning import grid_document  # noqa: PLC0415 - as above

    home, chosen = options.out / "tune", dict[str, float]()
    with hold(home), embedded_client(home, ClientSettings()) as client:
        for method in options.methods:
            grid = options.sigmas if method == "randopt" else options.radii
            size, experts = _TRIALS
            trials = plan_trials(
                _spec(options, method, POPULATION, grid[0], size),
                radii=sorted(grid),
                seeds=[39],
                heldout=f"{{source: '{_source(options, 'development')}', limit: 100}}",
                ensemble_size=experts,
            )
            ended = [trial_of(spec, run_experiment(client, spec, quiet=True)) for spec in trials]
            document = grid_document(trials[0], ended)
            chosen[method] = document.radius
            votes = {one.radius: one.mean for one in document.radii}
            print(json.dumps({"tuned": method, "radius": document.radius, "votes": votes}),
                  flush=True)  # fmt: skip
    return chosen


def _run_all(options: argparse.Namespace, drafts: str, scales: Mapping[str, float]) -> None:
    """Run the specs of all methods in one lab, one after the other."""
    from modnorm.cli.run_plan import plan_runs  # noqa: PLC0415 - only in the child
    from modnorm.cli.run_work import RunOptions, run_all  # noqa: PLC0415 - as above
    from modnorm.client.rundir import hold  # noqa: PLC0415 - as above

    files = []
    for method, radius in scales.items():
        spec = _spec(options, method, drafts, radius, options.population)
        files.append(options.out / f"{method}-{drafts}.yaml")
        # JSON is YAML.
        files[-1].write_text(spec.model_dump_json(exclude_defaults=True, exclude_none=True))
    home = options.out / ("-".join([drafts, *scales]) if drafts != NONE else drafts)
    runs = plan_runs(files, home, None)
    with hold(home):
        run_all(runs, home, refused=(), options=RunOptions(None, quiet=True, as_json=False))


def _directory(options: argparse.Namespace, method: str, drafts: str) -> Path:
    """Return the directory of a run: one spec has its home, several have one inside each."""
    if drafts == NONE:
        home: Path = options.out / NONE
        return home / f"{method}-{NONE}" if len(options.methods) > 1 else home
    directory: Path = options.out / f"{drafts}-{method}"
    return directory


def compare(options: argparse.Namespace, method: str, radius: float) -> dict[str, object]:
    """Return the figures of a method with and without drafts, and their differences."""
    plain, drafted = (_directory(options, method, one) for one in (NONE, POPULATION))
    runs = [load_run(one) for one in (plain, drafted)]
    said = [_answers(one) for one in (plain, drafted)]
    # Experts that differ answered held-out rows in one of the runs only.
    common = said[0].keys() & said[1].keys()
    different = [key for key in common if said[0][key].completion != said[1][key].completion]
    scores = [[one.selection_reward for one in run.candidates] for run in runs]
    experts = [[ensemble.experts for ensemble in run.ensembles] for run in runs]
    votes = [[vote.answer for vote in run.votes()] for run in runs]
    began = time.monotonic()
    spec = _spec(options, method, NONE, radius, options.population)
    step = -(-len(different) // _TRACED) or 1
    traced = sorted(different)[::step]
    return {
        "method": method,
        "radius": radius,
        "seconds": {NONE: _seconds(plain), POPULATION: _seconds(drafted)},
        "answers": len(common),
        "different_answers": len(different),
        "different_scores": _different(*scores),
        "experts": experts,
        "different_votes": _different(*votes),
        "votes": len(votes[0]),
        "metrics": [[ensemble.metric for ensemble in run.ensembles] for run in runs],
        "gaps": [*gaps(spec, plain, traced, (said[0], said[1]))] if traced else [],
        "traced_seconds": round(time.monotonic() - began, 1),
    }


def _different(left: Sequence[object], right: Sequence[object]) -> int:
    return sum(one != other for one, other in zip(left, right, strict=True))


def _seconds(directory: Path) -> dict[str, object]:
    """Return seconds a candidate, and the first ones, which include the engine's start."""
    found = read_timings(directory)["candidates"]
    lines: Sequence[Mapping[str, float]] = found if isinstance(found, list) else ()
    seconds = [float(one["seconds"]) for one in lines]
    return {
        "mean": round(sum(seconds) / len(seconds), 4),
        "median": round(median(seconds), 4),
        "all": [round(one, 3) for one in seconds],
    }


def _answers(directory: Path) -> dict[Key, AnswerRecord]:
    return {(one.candidate, one.split, one.row): one for one in read_answers(directory)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="tiny-thicket")
    parser.add_argument("--task", default="countdown")
    parser.add_argument("--rows", type=Path, help="folder of rows; else the bundled ones")
    parser.add_argument("--methods", nargs="+", default=["modular_norm", "randopt"])
    parser.add_argument("--radii", nargs="+", type=float, default=[0.32, 0.64, 1.28])
    parser.add_argument("--sigmas", nargs="+", type=float, default=[0.006, 0.012, 0.024])
    parser.add_argument("--population", type=int, default=32)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--selection", type=int, default=200, help="selection rows")
    parser.add_argument("--heldout", type=int, default=200, help="held-out rows")
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--scales", type=json.loads, help="instead of tuning, by method, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
