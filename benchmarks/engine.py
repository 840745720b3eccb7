"""Times of an engine: a switch to a candidate, restoring the base, and tokens a second.

    python -m benchmarks.engine MODEL [--engine auto] [--repeats 20] [--candidates 300]

Prints medians in milliseconds after a warm-up, for candidates with unknown and with known
coefficients, and tokens a second of the base by number of sequences. Then it prints SHA-256 of the
base before and after many candidates, and of a candidate. Exits with 1 if the first two differ or
the last does not.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines import Engine, load_engine
from modnorm.engines.protocol import GenerationLimits
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.perturbation.sampling import population_seeds

RADIUS = 0.16
"""R of the paper for Qwen2.5."""
SEQUENCES = (1, 16, 64, 256)
PROMPT = tuple(range(100, 250))
TOKENS = 128


def main() -> int:
    """Measure and print; return 1 unless only candidates change the weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=300)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found = measure(options.model, options.engine, options.repeats, options.candidates)
    text = json.dumps(found, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return 0 if found["no_drift"] and found["changes"] else 1


def measure(model: str, engine_name: str, repeats: int, candidates: int) -> dict[str, object]:
    """Return the times and digests of one engine."""
    checkpoint = resolve_checkpoint(model)
    scale_map = build_scale_map("no_sensitivity", checkpoint)
    seeds = population_seeds(42, 2 * (repeats + 1) + candidates, "nested")
    noise, method = "portable-v1", scale_map.method
    fresh = [Descriptor(noise, seed, method, RADIUS, scale_map.digest) for seed in seeds]
    engine = load_engine(engine_name, checkpoint)
    try:
        before = engine.weights_sha256()
        first, known = fresh[: repeats + 1], fresh[repeats + 1 : 2 * (repeats + 1)]
        resolved = [_resolved(engine, one, scale_map) for one in known]
        figures = {
            "first": _summary(list(_times(engine, first, scale_map))),
            "known": _summary(list(_times(engine, resolved, scale_map))),
        }
        rates = {count: _tokens_a_second(engine, count) for count in SEQUENCES}
        for one in fresh[2 * (repeats + 1) :]:
            _resolved(engine, one, scale_map)
        after = engine.weights_sha256()
        with engine.candidate(resolved[0], scale_map):
            changed = engine.weights_sha256()
        return {
            "environment": dict(engine.environment),
            "milliseconds": figures,
            "tokens_a_second": rates,
            "base_sha256": before,
            "no_drift": before == after,
            "changes": changed != before,
        }
    finally:
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
        "candidate": round(1e3 * median(there), 3),
        "slowest": round(1e3 * max(there), 3),
        "restore": round(1e3 * median(back), 3),
    }


def _tokens_a_second(engine: Engine, sequences: int) -> float:
    """Return the rate of the second of two equal requests."""
    for _ in range(2):
        started = time.perf_counter()
        prompts = [PROMPT] * sequences
        done = sum(one.tokens for one in engine.generate(prompts, GenerationLimits(TOKENS)))
        rate = done / (time.perf_counter() - started)
    return round(rate, 1)


if __name__ == "__main__":
    sys.exit(main())
