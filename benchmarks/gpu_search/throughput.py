"""Tokens per second of the project's engine and of plain vLLM on the same prompts.

    python -m benchmarks.gpu_search throughput MODEL [--rounds 5] [--out FILE]

All have the same engine arguments and run at the same time on one GPU, each with its
share of the memory. They answer the same request alternately: 200 prompts of 120 to 180 tokens,
answer lengths as in `search`. Plain vLLM is `LLM.generate` without the worker extension, in one
process (as the project's engine) and by default, with its core in a separate process. It builds no
text; the project's engine does, as scoring needs it.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.gpu_search.child_processes import Child, ending
from benchmarks.gpu_search.result_file import show
from benchmarks.gpu_search.workload import Workload
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines.protocol import GenerationLimits
from modnorm.engines.settings import EngineSettings

if TYPE_CHECKING:
    from vllm import LLM

ENGINE = "engine"
CONTENDERS = {
    ENGINE: "0",
    "vllm in one process": "0",
    "vllm": "1",
}
"""VLLM_ENABLE_V1_MULTIPROCESSING of each; the project's engine does not read it."""
Generate = Callable[[], int]
"""Answers the request; returns the generated tokens."""


@dataclass(frozen=True)
class ThroughputSettings:
    """Settings of one contender."""

    name: str
    model: str
    workload: Workload
    share: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    usual = Workload()
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=usual.rows)
    parser.add_argument("--median", type=int, default=usual.median)
    parser.add_argument("--cap", type=int, default=usual.cap)
    parser.add_argument("--only", nargs="+", choices=sorted(CONTENDERS), default=[*CONTENDERS])
    parser.add_argument("--out", type=Path)


def run(options: argparse.Namespace) -> int:
    """Measure alternately and print medians."""
    words = int(str(resolve_checkpoint(options.model).config["vocab_size"]))
    workload = Workload(options.rows, options.median, options.cap, vocabulary=words)
    share = 0.9 / len(options.only)
    rates: dict[str, list[float]] = {name: [] for name in options.only}
    with ExitStack() as stack:
        children = {}
        for name in options.only:
            child = Child(
                name,
                "benchmarks.gpu_search.throughput",
                ThroughputSettings(name, options.model, workload, share),
                {"VLLM_ENABLE_V1_MULTIPROCESSING": CONTENDERS[name]},
            )
            stack.enter_context(ending(child))
            child.answer()  # one after the other: vLLM measures free memory at its start
            children[name] = child
        for _ in range(options.rounds + 1):
            for name, child in children.items():
                rates[name].append(float(str(child.ask("generate"))))
        _report({name: measured[1:] for name, measured in rates.items()}, options.out)
    return 0


def _report(rates: dict[str, list[float]], out: Path | None) -> None:
    middle = {name: median(measured) for name, measured in rates.items()}
    content = {
        "tokens_a_second": {name: round(rate, 1) for name, rate in middle.items()},
        "rounds": {name: [round(one, 1) for one in measured] for name, measured in rates.items()},
        "engine_to_plain": {
            f"{ours} to {plain}": round(middle[ours] / middle[plain], 4)
            for ours in middle
            for plain in middle
            if ours == ENGINE != plain
        },
    }
    show(content, out)


def serve(connection: Connection, settings: ThroughputSettings) -> None:
    """Start, then answer each request; send its tokens per second."""
    generate, close = _engine(settings) if settings.name == ENGINE else _plain(settings)
    connection.send("ready")
    while connection.recv() is not None:
        started = time.perf_counter()
        tokens = generate()
        connection.send(tokens / (time.perf_counter() - started))
    close()


def _engine(settings: ThroughputSettings) -> tuple[Generate, Callable[[], None]]:
    from benchmarks.gpu_search.drawn_engine import DrawnEngine  # noqa: PLC0415 - loads vLLM

    engine = DrawnEngine(
        resolve_checkpoint(settings.model),
        EngineSettings(gpu_memory_utilization=settings.share),
    )
    engine.lengths = settings.workload.answers(0).lengths
    prompts = settings.workload.prompts()
    limits = GenerationLimits(settings.workload.cap)
    return lambda: sum(done.tokens for done in engine.generate(prompts, limits)), engine.close


def _plain(settings: ThroughputSettings) -> tuple[Generate, Callable[[], None]]:
    from vllm import SamplingParams  # noqa: PLC0415 - loads vLLM

    engine = _start(settings)
    prompts = [{"prompt_token_ids": list(ids)} for ids in settings.workload.prompts()]
    params = [
        SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True, detokenize=False)
        for length in settings.workload.answers(0).lengths
    ]

    def generate() -> int:
        requests = engine.generate(prompts, params, use_tqdm=False)
        return sum(len(request.outputs[0].token_ids) for request in requests)

    return generate, engine.llm_engine.engine_core.shutdown


def _start(settings: ThroughputSettings) -> "LLM":
    """Start plain vLLM with the engine's arguments, without the worker extension."""
    from vllm import LLM  # noqa: PLC0415 - loads vLLM

    from modnorm.checkpoint.weights import CheckpointWeights  # noqa: PLC0415 - loads torch
    from modnorm.engines.vllm.internals.linear_weights import keep_plain_weights  # noqa: PLC0415 - loads vLLM
    from modnorm.engines.vllm.start import engine_arguments  # noqa: PLC0415 - loads vLLM

    keep_plain_weights()
    checkpoint = resolve_checkpoint(settings.model)
    stored = CheckpointWeights(checkpoint)
    share = EngineSettings(gpu_memory_utilization=settings.share)
    arguments = engine_arguments(checkpoint, stored.layout, stored.dtype, share)
    del arguments["worker_extension_cls"]
    return LLM(**arguments)
