"""Cost of a switch to a candidate: noise, apply with and without coefficients, restore.

    python -m benchmarks.candidate_switch [--device cpu] [--threads 1] [--repeats 5] [--json]

Prints nanoseconds per element of the model in bfloat16, the best of the repeats. It measures the
bundled model and a synthetic layout of 50 million elements. That layout has the proportions of a
0.5B Qwen2 (embedding and layers). Weights are random; no engine and no checkpoint is used.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

import torch

from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.layout import Layout
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.geometry.scale_map import ScaleMap
from modnorm.geometry.scales import base_scale_map
from modnorm.noise import Block, get_scheme
from modnorm.perturbation.candidate_weights import CandidateWeights, WeightView
from modnorm.perturbation.descriptor import Descriptor
from modnorm.spec import Masses

MODEL = "0" * 64
NOISE = "portable-v1"
SYNTHETIC = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 22528,
    "tie_word_embeddings": True,
}


def best_seconds(work: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Return the shortest time of `work` after a warm-up."""
    best = inf
    for repeat in range(repeats + 1):
        _wait(device)
        started = time.perf_counter()
        work()
        _wait(device)
        if repeat:
            best = min(best, time.perf_counter() - started)
    return best


def measure(config: Mapping[str, object], device: torch.device, repeats: int) -> dict[str, float]:
    """Return nanoseconds per element for each step on a model with this configuration."""
    layout = physical_layout(config)
    scale_map = _scale_map(config)
    weights = _random_weights(layout, device)
    descriptor = _descriptor(scale_map)
    resolved = weights.apply(descriptor, scale_map)

    def switch(to: Descriptor) -> None:
        weights.restore()
        weights.apply(to, scale_map)

    restore = best_seconds(weights.restore, repeats, device)
    seconds = {
        "noise": best_seconds(lambda: _draw(layout, device), repeats, device),
        "apply_unresolved": best_seconds(lambda: switch(descriptor), repeats, device) - restore,
        "apply_resolved": best_seconds(lambda: switch(resolved), repeats, device) - restore,
        "restore": restore,
    }
    elements = sum(tensor.numel for tensor in layout)
    figures = {step: round(1e9 * value / elements, 3) for step, value in seconds.items()}
    return {"elements": elements, **figures}


def _scale_map(config: Mapping[str, object]) -> ScaleMap:
    """Return the modular norm's scales without sensitivity corrections: every rho is 1."""
    base = base_scale_map(config, Masses())
    tensors = tuple(replace(row, correction=1.0, scale=row.base_scale) for row in base.tensors)
    return replace(base, model_digest=MODEL, tensors=tensors)


def _random_weights(layout: Layout, device: torch.device) -> CandidateWeights:
    views = {
        tensor.name: [
            WeightView(
                torch.randn(tensor.shape, device=device).mul_(0.02).to(torch.bfloat16),
                Block.whole(tensor.shape),
            )
        ]
        for tensor in layout
    }
    return CandidateWeights(layout, views, model_digest=MODEL)


def _descriptor(scale_map: ScaleMap) -> Descriptor:
    return Descriptor(
        noise=NOISE,
        seed=1,
        method=scale_map.method,
        radius=0.16,
        scale_map=scale_map.digest,
    )


def _draw(layout: Layout, device: torch.device) -> None:
    scheme = get_scheme(NOISE)
    for tensor in layout:
        scheme.sample(1, tensor.name, tensor.shape, dtype=torch.bfloat16, device=device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure both layouts and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    models = {"tiny-thicket": resolve_checkpoint("tiny-thicket").config, "50M": SYNTHETIC}
    for name, config in models.items():
        figures = measure(config, options.device, options.repeats)
        if options.json:
            print(json.dumps({"model": name, "device": str(options.device), **figures}))
        else:
            steps = ", ".join(f"{step} {figure:g}" for step, figure in figures.items())
            print(f"{name} on {options.device}, ns an element: {steps}")


if __name__ == "__main__":
    main()
