"""Greedy generation by the transformers engine and by transformers' `generate`.

    python -m benchmarks.generation [--model tiny-thicket] [--prompts 200] [--max-tokens 192]

Both answer the same prompts with the same weights in one process, one after the other. The ratio
can be compared between machines. In float32 their tokens are identical; in bfloat16 rounding
changes some answers, so token counts differ slightly.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from modnorm.checkpoint.pretrained import best_device
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines import GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.spec import DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import load_rows

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Measurements of one pass over all prompts."""

    seconds: float
    tokens: int
    """Generated tokens, stop tokens included."""
    steps: int
    """Forward passes: those of the longest answer, and prefills."""

    def summary(self, prompts: int) -> dict[str, float]:
        """Return rounded rates."""
        return {
            "seconds": round(self.seconds, 3),
            "prompts_per_second": round(prompts / self.seconds, 2),
            "tokens_per_second": round(self.tokens / self.seconds, 1),
            "milliseconds_per_step": round(1000 * self.seconds / self.steps, 2),
        }


def time_engine(engine: TransformersEngine, prompts: Prompts, max_tokens: int) -> Timing:
    """Time one request to the engine."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    started = time.perf_counter()
    done = list(engine.generate(prompts, GenerationLimits(max_tokens), poll=count))
    seconds = time.perf_counter() - started
    return Timing(seconds, sum(completion.tokens for completion in done), steps)


def time_generate(
    checkpoint: Checkpoint, prompts: Prompts, max_tokens: int, device: torch.device
) -> Callable[[], Timing]:
    """Return a function that times one batch of `model.generate`, padded on the left."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        checkpoint.directory, dtype=CheckpointWeights(checkpoint).dtype, attn_implementation="sdpa"
    )
    model.to(device)
    stop_ids = PromptEncoder(checkpoint).stop_ids
    longest = max(map(len, prompts))
    pads = [longest - len(prompt) for prompt in prompts]
    rows = [[0] * pad + [*ids] for pad, ids in zip(pads, prompts, strict=True)]
    mask = [[0] * pad + [1] * (longest - pad) for pad in pads]

    def run() -> Timing:
        started = time.perf_counter()
        output = model.generate(
            input_ids=torch.tensor(rows, device=device),
            attention_mask=torch.tensor(mask, device=device),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=sorted(stop_ids),
            pad_token_id=0,
        )[:, longest:].tolist()
        seconds = time.perf_counter() - started
        tokens = sum(_generated(answer, stop_ids) for answer in output)
        return Timing(seconds, tokens, len(output[0]))

    return run


def _generated(answer: Sequence[int], stop_ids: frozenset[int]) -> int:
    stops = (place for place, token in enumerate(answer) if token in stop_ids)
    return next(stops, len(answer) - 1) + 1


def main() -> None:
    """Print both timings and their ratio as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny-thicket")
    parser.add_argument("--source", default="bundled:countdown-selection")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=192)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()

    checkpoint = resolve_checkpoint(arguments.model)
    task = get_task("countdown")
    spec = DataSpec(source=arguments.source, limit=arguments.prompts)
    encoder = PromptEncoder(checkpoint)
    prompts = [encoder.encode(task.messages(row)) for row in load_rows(task, spec, field="source")]
    engine = TransformersEngine(checkpoint)
    device = best_device()
    reference = time_generate(checkpoint, prompts, arguments.max_tokens, device)
    ours, theirs = [], []
    time_engine(engine, prompts, arguments.max_tokens)
    for _ in range(arguments.repeats):
        ours.append(time_engine(engine, prompts, arguments.max_tokens))
        theirs.append(reference())
    best = min(ours, key=lambda timing: timing.seconds)
    other = min(theirs, key=lambda timing: timing.seconds)
    figures = {
        "environment": dict(engine.environment),
        "prompts": len(prompts),
        "engine": best.summary(len(prompts)),
        "generate": other.summary(len(prompts)),
        "speedup": round(other.seconds / best.seconds, 2),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
