"""What each mechanism is worth: whole runs of a real model with one mechanism off at a time.

    python -m benchmarks.worth SPEC --out DIR
    python -m benchmarks.worth SPEC --out DIR --gpus 0 1 --only all drafts

Runs go side by side on the GPUs and share the profile, so `calibrate` means something in the first
run only. A variant with a result in DIR is not run again; DIR/worth.md is the table. The first run
on each GPU, whose compile caches are empty, is repeated. Engines under MPS and model affinity need
a lab and several models: no single run shows them.
"""

import argparse
import json
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from unittest.mock import patch

from benchmarks.pipeline.recording import GpuBusy
from modnorm.analysis.run import load_run
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import load_engine
from modnorm.engines.protocol import Engine
from modnorm.engines.settings import EngineSettings
from modnorm.services.common.settings import inherited_environment
from modnorm.spec import load_spec

_ALL = "all"
"""The variant with every mechanism."""
_WARM = "warm-up"


@dataclass(frozen=True)
class Variant:
    """One mechanism that is off."""

    spec: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Fields of the spec's sections that differ."""
    patches: Mapping[str, object] = field(default_factory=dict)
    """What stands for objects, by their names, where no setting switches them off."""


VARIANTS: Mapping[str, Variant] = {
    _ALL: Variant(),
    "drafts": Variant(spec={"engine": {"drafts": "none"}}),
    "more_sequences": Variant(spec={"engine": {"max_num_seqs": 256}}),
    "early_start": Variant(patches={"modnorm.services.embedded.is_vllm": lambda _: False}),
}


def main() -> int:
    """Run the variants that have no result, and print the table."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in options.only or VARIANTS:
        if not (options.out / f"{name}.json").exists():
            left.put(name)
    threads = [threading.Thread(target=_work, args=(gpu, left, options)) for gpu in options.gpus]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = render(options.out)
    (options.out / "worth.md").write_text(table)
    print(table)
    return 0


def render(out: Path) -> str:
    """Return the table of all results in Markdown; ratios are to the run with all mechanisms."""
    found = {name: path for name in VARIANTS if (path := out / f"{name}.json").exists()}
    results = {name: json.loads(path.read_text()) for name, path in found.items()}
    columns = ("total", "calibrate", "engine start", "search", "vote", "report", "busy")
    lines = [
        "| without | " + " | ".join(columns) + " | search and vote, times as long |",
        "|---|" + "---:|" * (len(columns) + 1),
    ]
    for name, result in results.items():
        cells = [f"{result[column] or 0:.1f}" for column in columns]
        ratio = _work_seconds(result) / _work_seconds(results.get(_ALL, result))
        lines.append(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def _work_seconds(result: Mapping[str, float]) -> float:
    return result["search"] + result["vote"]


def _work(gpu: str, left: "queue.SimpleQueue[str]", options: argparse.Namespace) -> None:
    """Run variants on one GPU until none is left."""
    warm = options.out / f"{_WARM}-{gpu}"
    if not warm.exists() and not left.empty():
        _run(gpu, _ALL, warm, options)
    while True:
        try:
            name = left.get_nowait()
        except queue.Empty:
            return
        place = options.out / name
        result = _run(gpu, name, place, options)
        if result is not None:
            (options.out / f"{name}.json").write_text(json.dumps(result, indent=1))


def _run(
    gpu: str, name: str, place: Path, options: argparse.Namespace
) -> Mapping[str, object] | None:
    """Run a variant in a process of its own; return its seconds, None if it failed."""
    shutil.rmtree(place, ignore_errors=True)
    variant, spec = VARIANTS[name], load_spec(options.spec).model_dump(mode="json")
    for section, changes in variant.spec.items():
        spec[section] |= changes
    place.mkdir(parents=True)
    (place / "spec.json").write_text(json.dumps({**spec, "reuse": False}))
    caches = options.out.absolute() / f"compiled-{gpu}"
    environment = {
        "CUDA_VISIBLE_DEVICES": gpu,
        "MODNORM_DEVICES": "",  # an engine in the command's own process, which the patches reach
        "MODNORM_CACHE_DIR": str(options.out.absolute() / "cache"),
        "VLLM_CACHE_ROOT": str(caches / "vllm"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }
    command = [sys.executable, "-m", "benchmarks.worth", "--variant", name]
    command += ["run", str(place / "spec.json"), "--out", str(place / "run")]
    began = time.time()
    with GpuBusy(int(gpu)) as busy, (place / "run.log").open("w") as log:
        ended = subprocess.run(
            command,
            check=False,
            env={**inherited_environment(), **environment},
            stdout=log,
            stderr=log,
        )
        total = time.time() - began
        timings = load_run(place / "run").timings() if ended.returncode == 0 else None
        if timings is None:
            print(f"{name} failed: see {place / 'run.log'}", flush=True)
            return None
        phases = timings["phases"]
        assert isinstance(phases, dict)
        voted = datetime.fromisoformat(str(timings["ended"])).timestamp()
        selected = voted - phases["voting"]
        start = json.loads((place / "engine.json").read_text())
        searching = max(start["ready"], selected - phases["selecting"])
        result = {
            "total": total,
            "calibrate": phases.get("calibrating", 0.0),
            "engine start": start["seconds"],
            "search": selected - searching,
            "vote": phases["voting"],
            "report": began + total - voted,
            "busy": busy.percent(searching, voted),
            "gpu": gpu,
        }
    print(f"{name}: {json.dumps(result)}", flush=True)
    return result


def _run_variant(name: str, arguments: Sequence[str]) -> None:
    """Run `modnorm` with one mechanism off, in this process."""
    variant, place = VARIANTS[name], Path(arguments[1]).parent
    # First: the modules of the other targets import it.
    patches = {"modnorm.engines.load_engine": partial(_load, place), **variant.patches}
    for target, replacement in patches.items():
        patch(target, replacement).start()
    from modnorm.cli import main as modnorm  # noqa: PLC0415 - it must find the patched objects

    sys.argv = ["modnorm", *arguments]
    modnorm()


def _load(place: Path, name: str, checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
    """Load an engine; note how long it takes."""
    began = time.time()
    engine = load_engine(name, checkpoint, settings)
    ready = time.time()
    (place / "engine.json").write_text(json.dumps({"ready": ready, "seconds": ready - began}))
    return engine


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.worth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spec", type=Path)
    parser.add_argument("--gpus", nargs="+", default=["0"])
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--variant"]:
        _run_variant(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
