"""Float32 and bfloat16 arithmetic on this CPU, with the bundled model's bfloat16 weights.

    taskset -c 0,1 python -m benchmarks.cpu_arithmetic [--threads 2] [--prompts 64] [--out FILE]

Prints wall and CPU seconds of a calibration, of greedy decoding and of a functional matching in
both, and the CPU's features. It needs torch, transformers and this package, no services.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from modnorm.calibration.calibrate import calibrate
from modnorm.checkpoint.pretrained import dtype_name
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.radius.artifact_schema import MatchingSettings
from modnorm.radius.functional_matching import match
from modnorm.radius.matching_plan import plan_matching
from modnorm.spec import CalibrationSpec, DataSpec, MethodSpec
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import load_rows

CPU = torch.device("cpu")
_USERS = (
    "modnorm.engines.transformers_engine",
    "modnorm.calibration.frozen_model",
    "modnorm.radius.displacement_meter",
)
"""Modules that use the dtype of the arithmetic."""
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "i8mm")
Prompts = list[list[int]]
Seconds = dict[str, float]


@contextmanager
def computing_in(dtype: torch.dtype) -> Iterator[None]:
    """Let engines, calibrations and matchings compute in a dtype inside the context."""
    with ExitStack() as patches:
        for module in _USERS:
            patches.enter_context(patch(f"{module}.arithmetic_dtype", lambda *_: dtype))
        yield


def encoded_rows(checkpoint: Checkpoint, source: str, limit: int) -> Prompts:
    """Return the prompts of Countdown rows as token ids."""
    task, encoder = get_task("countdown"), PromptEncoder(checkpoint)
    rows = load_rows(task, DataSpec(source=source, limit=limit), field="source")
    return [encoder.encode(task.messages(row)) for row in rows]


def decoding(checkpoint: Checkpoint, prompts: Prompts, cap: int) -> Seconds:
    """Time the base's answers after a warm-up of two short ones."""
    with closing(TransformersEngine(checkpoint, device=CPU)) as engine:
        list(engine.generate(prompts[:2], GenerationLimits(8)))
        return _timed(lambda: list(engine.generate(prompts, GenerationLimits(cap))))


def calibration(checkpoint: Checkpoint, prompts: Prompts, examples: int) -> Seconds:
    """Time a calibration, including the load of the model."""
    settings = CalibrationSpec(examples=examples)
    return _timed(lambda: calibrate(checkpoint, prompts, settings, task="countdown", device=CPU))


def matching(checkpoint: Checkpoint, prompts: Prompts, candidates: int) -> Seconds:
    """Time a matching of isotropic noise to itself at two scales."""
    plan = plan_matching(
        checkpoint=checkpoint,
        task="countdown",
        prompts=prompts,
        method=MethodSpec(name="randopt", radius=0.016),
        profile=None,
        radii=(0.008, 0.016),
        sigma=0.016,
        settings=MatchingSettings(prompts=len(prompts), candidates=candidates),
    )
    with tempfile.TemporaryDirectory() as folder:
        return _timed(lambda: match(plan, Path(folder) / "measurements.jsonl", device=CPU))


def _timed(work: Callable[[], object]) -> Seconds:
    wall, used = time.perf_counter(), time.process_time()
    work()
    return {
        "wall": round(time.perf_counter() - wall, 2),
        "cpu": round(time.process_time() - used, 2),
    }


def machine() -> dict[str, object]:
    """Return the features of the CPU and torch's use of them."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in lines.items()}
    known = set(fields.get("flags", fields.get("Features", "")).split())
    return {
        "cpu": fields.get("model name", "unknown"),
        "flags": [flag for flag in _FLAGS if flag in known],
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--examples", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    checkpoint = resolve_checkpoint("tiny-thicket")
    prompts = encoded_rows(checkpoint, "bundled:countdown-heldout", options.prompts)
    results: dict[str, object] = {"machine": machine()}
    for dtype in (torch.float32, torch.bfloat16):
        with computing_in(dtype):
            results[dtype_name(dtype)] = {
                "decoding": decoding(checkpoint, prompts, options.max_tokens),
                "calibration": calibration(checkpoint, prompts, options.examples),
                "matching": matching(checkpoint, prompts[:16], options.candidates),
            }
        print(json.dumps(results, indent=2), flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
