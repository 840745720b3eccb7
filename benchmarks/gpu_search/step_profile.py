"""Where the time of a step goes with drafts: the device's kernels, and its waits for the host.

    python -m benchmarks.gpu_search profile MODEL --texts TEXTS --out FILE

One engine says recorded texts (`drafts` writes them), until the table of drafts is full. Then 40
steps of each size are profiled. FILE gets one line of JSON a size (`StepProfile`). A step takes
longer while it is profiled, so its waits are upper bounds.
"""

import argparse
import json
from pathlib import Path

from benchmarks.gpu_search.driver_messages import Settings
from benchmarks.gpu_search.workload import Workload
from modnorm.checkpoint.reference import resolve_checkpoint

_WORKER = "benchmarks.gpu_search.profiling_worker.ProfilingWorker"
_SHARE = 0.6


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("model", help="checkpoint, for example of make-model")
    parser.add_argument("--texts", type=Path, required=True, help="texts that the model says")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--candidates", type=int, default=12, help="before steps are profiled")
    parser.add_argument("--without", action="store_true", help="profile steps without drafts")


def run(options: argparse.Namespace) -> int:
    """Profile and print."""
    # The command's help does not need vLLM.
    from benchmarks.gpu_search.ours import ScoringEngine  # noqa: PLC0415
    from benchmarks.gpu_search.speaking_engine import SpeakingEngine  # noqa: PLC0415

    config = resolve_checkpoint(options.model).config
    workload = Workload(vocabulary=int(str(config["vocab_size"])))
    settings = Settings(
        options.model,
        workload,
        options.candidates,
        texts=str(options.texts.absolute()),
        share=_SHARE,
        drafts=not options.without,
    )
    contender = ScoringEngine(settings, worker=_WORKER)
    contender.warm_up()
    for candidate in range(options.candidates):
        outcome = contender.evaluate(candidate, None)
        print(f"candidate {candidate}: {outcome.generate:.3f} s", flush=True)
    assert isinstance(contender.engine, SpeakingEngine)
    contender.engine.profile(str(options.out.absolute()))
    contender.evaluate(options.candidates, None)
    contender.close()
    for line in options.out.read_text().splitlines():
        figures = json.loads(line)
        print(
            f"{figures['sequences']} sequences, {figures['tokens']} tokens: "
            f"{figures['wall']:.2f} ms a step, device busy {figures['busy']:.2f} ms"
        )
    return 0
