"""Seconds from the start of a process to its first answer.

    python -m benchmarks.gpu_search startup MODEL [--warm 2] [--out FILE]

First with empty compile caches (vLLM, Triton, torch, CUDA), then with filled ones. Imports,
the engine (weights, graphs, pristine copy) and the first answer of a candidate are separate.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.gpu_search.child_processes import measured_by
from benchmarks.gpu_search.result_file import show

CACHES = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")


@dataclass(frozen=True)
class StartupSettings:
    """The model, and the time of the start."""

    model: str
    began: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("model")
    parser.add_argument("--warm", type=int, default=2, help="number of starts with warm caches")
    parser.add_argument("--out", type=Path)


def run(options: argparse.Namespace) -> int:
    """Start with cold and warm caches; print the times."""
    with tempfile.TemporaryDirectory(prefix="caches-", ignore_cleanup_errors=True) as folder:
        variables = {name: str(Path(folder) / name.lower()) for name in CACHES}
        results = {"cold": _start(options.model, variables)}
        for number in range(options.warm):
            results[f"warm {number + 1}"] = _start(options.model, variables)
    show(results, options.out)
    return 0


def _start(model: str, variables: dict[str, str]) -> object:
    settings = StartupSettings(model, time.perf_counter())
    return measured_by("startup", "benchmarks.gpu_search.startup", settings, variables)


def serve(connection: Connection, settings: StartupSettings) -> None:
    """Send the seconds since the start after each step."""
    seconds = {}

    def passed(step: str) -> None:
        seconds[step] = round(time.perf_counter() - settings.began, 2)

    # The time of these imports is measured.
    from benchmarks.gpu_search.candidates import descriptor_of, scale_map_of  # noqa: PLC0415
    from modnorm.checkpoint.reference import resolve_checkpoint  # noqa: PLC0415
    from modnorm.engines.protocol import GenerationLimits  # noqa: PLC0415
    from modnorm.engines.vllm.engine import VllmEngine  # noqa: PLC0415

    passed("imports")
    checkpoint = resolve_checkpoint(settings.model)
    engine = VllmEngine(checkpoint)
    passed("engine")
    scale_map = scale_map_of(checkpoint)
    with engine.candidate(descriptor_of(scale_map, 1), scale_map):
        list(engine.generate([[5, 6, 7]], GenerationLimits(1)))
    passed("first_answer")
    connection.send(seconds)
    engine.close()
