"""Scaling of one experiment on 1, 2, 4 GPUs of a host.

    python -m benchmarks.gpu_search scaling MODEL [--gpus 1 2 4] [--population 63] [--rounds 1]
        [--out FILE] [--engines 1] [--redis FOLDER] [--database sqlite|postgres]
        [--drafts population]

Runs a whole lab: Redis, sampler, aggregator and the supervisor of a host's evaluators. Before each
measured experiment small ones run until every evaluator holds the model. The search phase lasts
from the event that selection begins to the event that voting begins. Efficiency is T1 / (G * TG)
with the medians of all rounds, since a host's speed varies over time. The base is scored too:
N = 63 makes 64 jobs. Answers are real: random weights hardly ever stop, so nearly all are as long
as `--max-tokens`. Every candidate answers every row (`statistics: full`). `busy %` is the share of
the engines' time that jobs took.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.gpu_search.candidates import METHOD, RADIUS
from benchmarks.gpu_search.host_lab import LabPlan, running_lab
from benchmarks.gpu_search.report_tables import print_table
from modnorm.client.calls import list_candidates
from modnorm.client.client import Client
from modnorm.client.experiments import ExperimentState
from modnorm.spec import ExperimentSpec, parse_spec
from modnorm.v1 import experiment_pb2 as experiments

_BAD_ENDS = (ExperimentState.FAILED, ExperimentState.CANCELLED)
Figures = dict[str, object]
Rounds = Mapping[int, Sequence[Figures]]
"""Measurements by number of GPUs."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("model", type=Path)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--engines", type=int, default=1, help="engines per GPU, under MPS")
    parser.add_argument("--population", type=int, default=63)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--drafts", choices=("none", "population"), default="none")
    parser.add_argument("--redis", type=Path, help="folder of redis-server; default: PATH")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--out", type=Path)


def run(options: argparse.Namespace) -> int:
    """Run the experiments and print the efficiency of each."""
    # most GPUs first: each worker's compile cache is filled concurrently
    chosen = sorted(options.gpus, reverse=True)
    rounds: dict[int, list[Figures]] = {gpus: [] for gpus in chosen}
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as name:
        models = options.model.absolute().parent
        plan = LabPlan(Path(name), models, options.redis, options.database == "postgres")
        with running_lab(plan) as lab, Client(lab.target) as client:
            for gpus in chosen * options.rounds:
                with lab.evaluators(gpus, options.engines):
                    _warm_up(client, gpus, options)
                    rounds[gpus].append(_measure(client, gpus, options))
                _keep(rounds, options)
    _print(rounds)
    return 0


def _warm_up(client: Client, gpus: int, options: argparse.Namespace) -> None:
    """Let every worker score a candidate, so that it loads the model."""
    wanted, warm = gpus * options.engines, set[str]()
    for number in count():
        if len(warm) >= wanted:
            return
        spec = _spec(options, f"warm {gpus}.{number}", 2 * wanted - 1, max_tokens=4)
        warm |= _workers(client, _finished(client, spec))


def _measure(client: Client, gpus: int, options: argparse.Namespace) -> Figures:
    spec = _spec(options, f"{gpus} GPUs", options.population, max_tokens=options.max_tokens)
    identity = client.submit(spec).id
    began, ended = _search_phase(client, identity)
    candidates = _candidates(client, identity)
    seconds = ended - began
    return {
        "seconds": seconds,
        "jobs": len(candidates),
        "seconds_a_job": seconds / len(candidates),
        "tokens": sum(one.selection_tokens for one in candidates),
        "busy_share": sum(one.seconds for one in candidates) / (gpus * options.engines * seconds),
        "jobs_by_worker": dict(Counter(one.worker for one in candidates)),
        "environment": dict(candidates[0].environment),
    }


def _search_phase(client: Client, identity: str) -> tuple[float, float]:
    """Return the start and end of the selection on the aggregator's clock."""
    began = None
    for event in client.watch(identity):
        now = event.time.timestamp()
        if event.state is ExperimentState.SELECTING and began is None:
            began = now
        if event.state is ExperimentState.VOTING or event.state.is_final:
            if began is None or event.state in _BAD_ENDS:
                raise SystemExit(f"the experiment has failed: {client.get(identity).error}")
            _wait(client, identity)
            return began, now
    raise SystemExit("the experiment ended without an event of its end")


def _finished(client: Client, spec: ExperimentSpec) -> str:
    identity: str = client.submit(spec).id
    _wait(client, identity)
    return identity


def _wait(client: Client, identity: str) -> None:
    for _ in client.watch(identity):
        pass
    experiment = client.get(identity)
    if experiment.state is not ExperimentState.SUCCEEDED:
        raise SystemExit(f"the experiment has not succeeded: {experiment.error}")


def _candidates(client: Client, identity: str) -> list[experiments.Candidate]:
    return list(client.pages(partial(list_candidates, identity)))


def _workers(client: Client, identity: str) -> set[str]:
    return {candidate.worker for candidate in _candidates(client, identity)}


def _spec(
    options: argparse.Namespace, name: str, population: int, *, max_tokens: int
) -> ExperimentSpec:
    return parse_spec(
        {
            "name": name,
            "model": str(options.model.absolute()),
            "task": {
                "name": "countdown",
                "selection": {"source": "bundled:countdown-selection", "limit": options.rows},
                "heldout": {"source": "bundled:countdown-heldout", "limit": 1},
                "max_tokens": max_tokens,
            },
            "method": {"name": METHOD, "radius": RADIUS},
            "population": {"size": population, "statistics": "full"},
            "engine": {"name": options.engine, "drafts": options.drafts},
        }
    )


def _keep(rounds: Rounds, options: argparse.Namespace) -> None:
    if options.out:
        chosen = {
            name: getattr(options, name) for name in ("engines", "rows", "max_tokens", "drafts")
        }
        content = {**chosen, "gpus": rounds}
        options.out.write_text(json.dumps(content, indent=2) + "\n")


def _print(measured: Rounds) -> None:
    base = min(measured)
    alone = base * _middle(measured[base], "seconds")
    lines = [("GPUs", "jobs", "seconds", "of rounds", "s/job", "busy %", "efficiency")]
    for gpus, rounds in sorted(measured.items()):
        seconds = [_number(one["seconds"]) for one in rounds]
        lines.append(
            (
                str(gpus),
                str(rounds[0]["jobs"]),
                f"{median(seconds):.1f}",
                f"{min(seconds):.1f} to {max(seconds):.1f}",
                f"{_middle(rounds, 'seconds_a_job'):.3f}",
                f"{100 * _middle(rounds, 'busy_share'):.1f}",
                f"{alone / (gpus * median(seconds)):.3f}",
            )
        )
    print_table(lines)


def _middle(rounds: Sequence[Figures], name: str) -> float:
    return median(_number(one[name]) for one in rounds)


def _number(value: object) -> float:
    return float(str(value))
