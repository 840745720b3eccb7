"""Time of a switch to a candidate on a GPU, and a check of its weights.

    python -m benchmarks.gpu_kernels [--shape 1.5b|tiny] [--device cuda] [--repeats 10]
                                     [--candidates 300] [--profile 0] [--out FILE]

Prints milliseconds, the median of the repeats, for random bfloat16 weights in the shape of
Qwen2.5-1.5B under the modular norm. The steps are an unresolved candidate (noise, norms, weights),
known coefficients, restore, and comparison with the base. A copy of all weights is the lower bound
of the last three. All are repeated without kernels. `--profile` adds means by kernel over a number
of candidates. Then it prints SHA-256 of one candidate on the CPU, on the device, in transformers'
layout and over two ranks, and of the base after many candidates. Kernels sum norms in another
order, so the digests are of one candidate with the same coefficients.

Exits with 1 if a digest differs, a candidate equals the base, or a GPU does not use kernels.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.shapes import SHAPES
from modnorm.checkpoint.families import Layout, PhysicalTensor, physical_layout
from modnorm.checkpoint.weights import weights_sha256
from modnorm.geometry.scale_map import ScaleMap
from modnorm.geometry.scales import base_scale_map
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView
from modnorm.spec import Masses

MODEL = "0" * 64
QWEN = {"model_type": "qwen2", "tie_word_embeddings": True}
Tensors = Mapping[str, torch.Tensor]
Cut = Callable[[PhysicalTensor], list[Block]]
"""Returns the blocks of a tensor that a rank holds."""


def scale_map_of(config: Mapping[str, object]) -> ScaleMap:
    """Return the modular norm's scales without sensitivity corrections: every rho is 1."""
    base = base_scale_map(config, Masses())
    tensors = tuple(replace(row, correction=1.0, scale=row.base_scale) for row in base.tensors)
    return replace(base, model_digest=MODEL, tensors=tensors)


def random_weights(layout: Layout, device: torch.device) -> dict[str, torch.Tensor]:
    """Return weights of the usual sizes."""
    torch.manual_seed(1)
    return {
        tensor.name: torch.randn(tensor.shape, device=device).mul_(0.02).to(torch.bfloat16)
        for tensor in layout
    }


def whole(tensor: PhysicalTensor) -> list[Block]:
    """Return a whole tensor, as vLLM holds it."""
    return [Block.whole(tensor.shape)]


def unfused(tensor: PhysicalTensor) -> list[Block]:
    """Return the parts of a tensor, as transformers holds them."""
    blocks, first = [], 0
    for part in tensor.parts:
        blocks.append(Block((first, first + part.rows)))
        first += part.rows
    return blocks


def ranked(rank: int) -> Cut:
    """Return the blocks of a tensor on one of two ranks: half of each part, or of the columns."""

    def held(tensor: PhysicalTensor) -> list[Block]:
        if "o_proj" in tensor.name or "down_proj" in tensor.name:
            middle = tensor.shape[1] // 2
            columns = (0, middle) if rank == 0 else (middle, tensor.shape[1])
            return [Block((0, tensor.shape[0]), columns)]
        halves = []
        for block in unfused(tensor):
            middle = sum(block.rows) // 2
            halves.append(Block((block.rows[0], middle) if rank == 0 else (middle, block.rows[1])))
        return halves

    return held


def hold(layout: Layout, tensors: Tensors, cut: Cut, *, kernels: bool = True) -> CandidateWeights:
    """Return candidate weights over existing memory, cut into views."""
    views = {
        tensor.name: [WeightView(block.of(tensors[tensor.name]), block) for block in cut(tensor)]
        for tensor in layout
    }
    return CandidateWeights(layout, views, model_digest=MODEL, kernels=kernels)


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the time of one call, including its work on the device."""
    _wait(device)
    started = time.perf_counter()
    work()
    _wait(device)
    return 1e3 * (time.perf_counter() - started)


def median(
    work: Callable[[], object],
    repeats: int,
    device: torch.device,
    after: Callable[[], object] = lambda: None,
) -> float:
    """Return the median time of calls after a warm-up; `after` is not timed."""
    times = []
    for _ in range(repeats + 1):
        times.append(milliseconds(work, device))
        after()
    return round(statistics.median(times[1:]), 3)


def switch_times(
    weights: CandidateWeights, scale_map: ScaleMap, repeats: int, device: torch.device
) -> dict[str, float]:
    """Return medians of the steps of one switch; restores between them are not timed."""
    seeds = itertools.count(10)
    resolved: list[Descriptor] = []

    def first() -> None:
        resolved.append(weights.apply(_descriptor(scale_map, next(seeds)), scale_map))

    cold = milliseconds(first, device)
    weights.restore()
    return {
        "cold": round(cold, 3),
        "first": median(first, repeats, device, weights.restore),
        "known": median(
            lambda: weights.apply(resolved[0], scale_map), repeats, device, weights.restore
        ),
        "restore": median(weights.restore, repeats, device),
        "compare": median(weights.is_pristine, repeats, device),
    }


def by_kernel(
    weights: CandidateWeights, scale_map: ScaleMap, candidates: int, device: torch.device
) -> dict[str, float]:
    """Return the device's milliseconds per candidate, including its restore, by kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for seed in range(candidates):
            weights.apply(_descriptor(scale_map, 500 + seed), scale_map)
            weights.restore()
        _wait(device)
    times = {one.key: one.self_device_time_total / candidates for one in profile.key_averages()}
    longest_first = sorted(times.items(), key=lambda item: -item[1])
    return {name: round(microseconds / 1e3, 3) for name, microseconds in longest_first}


def copy_time(base: Tensors, repeats: int, device: torch.device) -> float:
    """Return the median time of one copy of all weights."""
    flat = torch.cat([tensor.flatten() for tensor in base.values()])
    copy = flat.clone()
    return median(lambda: copy.copy_(flat), repeats, device)


def digests(
    layout: Layout, base: Tensors, scale_map: ScaleMap, device: torch.device
) -> Iterator[tuple[str, str]]:
    """Yield SHA-256 of one candidate by device and layout."""
    plain = {name: tensor.to("cpu", copy=True) for name, tensor in base.items()}
    weights = hold(layout, plain, whole, kernels=False)
    resolved = weights.apply(_descriptor(scale_map, 1), scale_map)
    yield "cpu, plain", weights.sha256()
    layouts: Mapping[str, list[Cut]] = {
        "fused": [whole],
        "unfused": [unfused],
        "two ranks": [ranked(0), ranked(1)],
    }
    for name, cuts in layouts.items():
        own = {key: tensor.clone() for key, tensor in base.items()}
        for cut in cuts:
            hold(layout, own, cut).apply(resolved, scale_map)
        yield f"{device.type}, {name}", _sha256(layout, own)


def drift(
    weights: CandidateWeights, scale_map: ScaleMap, candidates: int
) -> tuple[str, str, bool]:
    """Return SHA-256 of the base before and after many candidates.

    The last value is whether the base was present before each candidate and absent during it.
    """
    before, always = weights.sha256(), True
    for seed in range(candidates):
        always = always and weights.is_pristine()
        weights.apply(_descriptor(scale_map, 1000 + seed), scale_map)
        always = always and not weights.is_pristine()
        weights.restore()
    return before, weights.sha256(), always


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Return all figures of one shape on one device."""
    config, device = {**QWEN, **SHAPES[options.shape]}, torch.device(options.device)
    layout, scale_map = physical_layout(config), scale_map_of(config)
    base = random_weights(layout, device)
    weights = hold(layout, base, whole)
    plain = hold(layout, base, whole, kernels=False)
    times = {
        "kernels": switch_times(weights, scale_map, options.repeats, device),
        "plain": switch_times(plain, scale_map, min(3, options.repeats), device),
        "copy": {"all weights": copy_time(base, options.repeats, device)},
    }
    del plain
    if options.profile:
        times["by kernel"] = by_kernel(weights, scale_map, options.profile, device)
    before, after, always = drift(weights, scale_map, options.candidates)
    sha256 = dict(digests(layout, base, scale_map, device))
    on_gpu = device.type == "cuda"
    return {
        "shape": options.shape,
        "elements": sum(tensor.numel for tensor in layout),
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "torch": str(torch.__version__),
        "has_kernels": weights.has_kernels,
        "milliseconds": times,
        "sha256": sha256,
        "equal": len(set(sha256.values())) == 1 and before not in sha256.values(),
        "candidates": options.candidates,
        "no_drift": before == after and always,
    }


def _descriptor(scale_map: ScaleMap, seed: int) -> Descriptor:
    return Descriptor("portable-v1", seed, scale_map.method, 0.16, scale_map.digest)


def _sha256(layout: Layout, tensors: Tensors) -> str:
    return weights_sha256(layout, lambda tensor: tensors[tensor.name])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> int:
    """Measure and print; return 0 if all checks passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="1.5b")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--candidates", type=int, default=300)
    parser.add_argument("--profile", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.profile and options.device == "cpu":
        parser.error("--profile is of a GPU's kernels")
    results = measure(options)
    text = json.dumps(results, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    kernels_missing = results["device"] != "cpu" and not results["has_kernels"]
    return 0 if results["equal"] and results["no_drift"] and not kernels_missing else 1


if __name__ == "__main__":
    sys.exit(main())
