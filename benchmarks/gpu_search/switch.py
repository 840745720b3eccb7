"""Time of a switch to a candidate inside vLLM, and of the restoration of the base.

    python -m benchmarks.gpu_search switch MODEL [--repeats 20] [--candidates 300] [--out FILE]

Prints medians in milliseconds after a warm-up:

- the comparison with the base, and the calls of vLLM's workers;
- noise, norms and weights of an unresolved candidate;
- weights of a candidate with known coefficients;
- restoring the base.

Then it prints SHA-256 of the base before and after many candidates, and of a candidate. Exits with
1 if the first two differ or the last does not.
`benchmarks.gpu_kernels` measures the same without vLLM.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from benchmarks.gpu_search.candidates import descriptor_of, scale_map_of, seeds_of
from benchmarks.gpu_search.child_processes import measured_by
from benchmarks.gpu_search.result_file import show
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines import Engine, load_engine
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor


@dataclass(frozen=True)
class SwitchSettings:
    """Settings of the measurement."""

    model: str
    repeats: int
    candidates: int


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=300)
    parser.add_argument("--out", type=Path)


def run(options: argparse.Namespace) -> int:
    """Measure and print; return 1 unless only candidates change the weights."""
    settings = SwitchSettings(options.model, options.repeats, options.candidates)
    results = measured_by("switch", "benchmarks.gpu_search.switch", settings)
    show(results, options.out)
    return 0 if isinstance(results, dict) and results["no_drift"] and results["changes"] else 1


def serve(connection: Connection, settings: SwitchSettings) -> None:
    """Send the measurements."""
    checkpoint = resolve_checkpoint(settings.model)
    scale_map = scale_map_of(checkpoint)
    seeds = seeds_of(2 * settings.repeats + settings.candidates + 2)
    engine = load_engine("vllm", checkpoint)
    before = engine.weights_sha256()
    fresh = [descriptor_of(scale_map, seed) for seed in seeds]
    first, known = fresh[: settings.repeats + 1], fresh[settings.repeats + 1 :]
    resolved = [_resolved(engine, one, scale_map) for one in known[: settings.repeats + 1]]
    figures = {
        "first": _summary(list(_times(engine, first, scale_map))),
        "known": _summary(list(_times(engine, resolved, scale_map))),
    }
    for one in known[settings.repeats + 1 :][: settings.candidates]:
        _resolved(engine, one, scale_map)
    after = engine.weights_sha256()
    with engine.candidate(resolved[0], scale_map):
        changed = engine.weights_sha256()
    connection.send(
        {
            "environment": dict(engine.environment),
            "milliseconds": figures,
            "candidates": settings.candidates,
            "base_sha256": before,
            "no_drift": before == after,
            "changes": changed != before,
        }
    )
    engine.close()


def _resolved(engine: Engine, descriptor: Descriptor, scale_map: ScaleMap) -> Descriptor:
    with engine.candidate(descriptor, scale_map) as resolved:
        return resolved


def _times(
    engine: Engine, descriptors: Sequence[Descriptor], scale_map: ScaleMap
) -> Iterator[tuple[float, float]]:
    """Yield the seconds of each switch to a candidate and of each restoration."""
    for descriptor in descriptors:
        started = time.perf_counter()
        with engine.candidate(descriptor, scale_map):
            there = time.perf_counter()
        yield there - started, time.perf_counter() - there


def _summary(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    there, back = zip(*times[1:], strict=True)
    return {
        "cold": round(1e3 * times[0][0], 3),
        "candidate": round(1e3 * median(there), 3),
        "slowest": round(1e3 * max(there), 3),
        "restore": round(1e3 * median(back), 3),
    }
