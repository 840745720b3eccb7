"""Answers of the bundled model in float32 and in bfloat16 arithmetic, with the same weights.

    python -m benchmarks.arithmetic_agreement [--rows 500] [--candidates 2] [--out FILE]
    python -m benchmarks.arithmetic_agreement --run bfloat16 run SPEC --out DIR

The base and candidates of both methods answer Countdown's held-out rows in both. The output lists
equal answers, correct ones in each, and rows that became right or wrong. With `--run` the rest is
a command of `modnorm`, which computes in that dtype on this CPU.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.cpu_arithmetic import CPU, computing_in, machine
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.cli.app import main as modnorm
from modnorm.engines import GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.perturbation.sampling import population_seeds
from modnorm.spec import DataSpec, Masses
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import load_rows

_RADII = {"randopt": 0.016, "no_sensitivity": 0.64}
"""Methods without a profile, at the radii of the demo."""
_SEED = 42
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Candidate = tuple[Descriptor, ScaleMap]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of one candidate by row."""

    sha256: str
    """Digest of its weights."""
    texts: Sequence[str]
    right: Sequence[bool]


def candidates(count: int) -> Iterator[Candidate]:
    """Yield the base and the first candidates of each method."""
    checkpoint = resolve_checkpoint("tiny-thicket")
    seeds = population_seeds(_SEED, count, "nested")
    for method, radius in {"base": 0.0, **_RADII}.items():
        scale_map = build_scale_map(
            method,
            config=checkpoint.config,
            model_digest=checkpoint.digest,
            masses=Masses(),
            weights=CheckpointWeights(checkpoint),
            sensitivities=None,
        )
        for seed in seeds[:1] if method == "base" else seeds:
            yield Descriptor("portable-v1", seed, method, radius, scale_map.digest), scale_map


def answers(dtype: torch.dtype, rows: int, count: int) -> Iterator[Answers]:
    """Yield the answers of each candidate when the engine computes in a dtype."""
    checkpoint, task = resolve_checkpoint("tiny-thicket"), get_task("countdown")
    source = DataSpec(source="bundled:countdown-heldout", limit=rows)
    questions = load_rows(task, source, field="source")
    encoder = PromptEncoder(checkpoint)
    prompts = [encoder.encode(task.messages(row)) for row in questions]
    with computing_in(dtype), closing(TransformersEngine(checkpoint, device=CPU)) as engine:
        for descriptor, scale_map in candidates(count):
            with engine.candidate(descriptor, scale_map):
                done = engine.generate(prompts, GenerationLimits(128))
                texts = [one.text for one in sorted(done, key=lambda one: one.index)]
                pairs = zip(questions, texts, strict=True)
                right = [task.judge(row, text).correct for row, text in pairs]
                yield Answers(engine.weights_sha256(), texts, right)


def comparison(candidate: Candidate, one: Answers, other: Answers) -> dict[str, object]:
    """Return how the answers of one candidate in two arithmetics differ.

    Raises:
        SystemExit: the weights differ.
    """
    descriptor, _ = candidate
    if one.sha256 != other.sha256:
        sys.exit(f"{descriptor.method} {descriptor.seed}: the weights differ")
    judged = list(zip(one.right, other.right, strict=True))
    return {
        "method": descriptor.method,
        "seed": descriptor.seed,
        "rows": len(judged),
        "equal": sum(a == b for a, b in zip(one.texts, other.texts, strict=True)),
        "right_float32": sum(one.right),
        "right_bfloat16": sum(other.right),
        "right_in_one_only": sum(a != b for a, b in judged),
    }


def compare(options: argparse.Namespace) -> dict[str, object]:
    """Return the comparison of each candidate."""
    both = [list(answers(dtype, options.rows, options.candidates)) for dtype in _DTYPES.values()]
    triples = zip(candidates(options.candidates), *both, strict=True)
    return {"machine": machine(), "candidates": [comparison(*triple) for triple in triples]}


def main() -> int:
    """Compare and print, or run a command in a dtype."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--candidates", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", nargs=argparse.REMAINDER, metavar="DTYPE COMMAND")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.run:
        dtype, *command = options.run
        with computing_in(_DTYPES[dtype]), patch.object(sys, "argv", ["modnorm", *command]):
            modnorm()
        return 0
    text = json.dumps(compare(options), indent=2)
    print(text)
    if options.out:
        options.out.write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
