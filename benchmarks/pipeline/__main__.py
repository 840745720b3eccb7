"""The whole pipeline of one spec, from process start to results, beside the published way.

    python -m benchmarks.pipeline SPEC --out FOLDER [--candidates N] [--experts K] [--seconds S]

Both run one after the other on one GPU, with the same rows, prompts and caps, each with an empty
cache of profiles. `--candidates`, `--experts` and `--seconds` stop the published way after a part
of its search and of its votes; the whole is then extrapolated from the mean candidate and the mean
expert, and marked so. The published way does not evaluate the base. `--only "one engine"` runs
ours with an engine inside the command, which also gives the gaps between models.

FOLDER gets `pipeline.json`, the table `pipeline.md`, the logs and the run directory.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.pipeline.recording import Event, GpuBusy, first_gpu, quantile, read_events
from modnorm.analysis.run import load_run
from modnorm.services.common.settings import inherited_environment
from modnorm.spec import ExperimentSpec, load_spec

PHASES = ("start", "calibrate", "load", "search", "vote", "report")
SIDES = ("published", "ours")
ONE_ENGINE = "one engine"
"""Ours, with an engine in the command's own process whose calls are noted."""
_LIMITS = ("candidates", "experts", "seconds")


@dataclass(frozen=True)
class Side:
    """What one side measured: the time of each phase's begin, and of the end."""

    begins: Mapping[str, float]
    end: float
    figures: Mapping[str, object]

    def spans(self) -> Iterator[tuple[str, float, float]]:
        """Yield each phase with its begin and its end."""
        known = [(name, self.begins[name]) for name in PHASES if name in self.begins]
        for (name, begin), (_, end) in pairwise([*known, ("", self.end)]):
            yield name, begin, end


def main() -> int:
    options = _options()
    spec = load_spec(options.spec)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "pipeline.json"
    content: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
    with GpuBusy(first_gpu(inherited_environment().get("CUDA_VISIBLE_DEVICES", "0"))) as busy:
        content |= {"spec": spec.model_dump(mode="json"), "device": busy.device}
        for side in options.only or SIDES:
            published = side == "published"
            measured = _published(spec, options) if published else _ours(options, side)
            content[side] = _summary(measured, busy)
            path.write_text(json.dumps(content, indent=1) + "\n")
    table = render(content)
    (options.out / "pipeline.md").write_text(table)
    print(table)
    return 0


def render(content: Mapping[str, object]) -> str:
    """Return the table of both sides in Markdown, with the ratios where both are there."""
    names = (*SIDES, ONE_ENGINE)
    sides = {name: side for name in names if isinstance(side := content.get(name), dict)}
    lines = [
        f"Device: {content['device']}. Seconds; GPU busy in percent by NVML's utilisation.",
        "",
        "| phase | " + " | ".join(f"{name} | busy" for name in sides) + " |",
        "|---|" + "---:|---:|" * len(sides),
    ]
    for phase in (*PHASES, "total"):
        cells = [
            f"{side['seconds'].get(phase, 0):.1f} | {_busy(side, phase)}"
            for side in sides.values()
        ]
        lines.append(f"| {phase} | " + " | ".join(cells) + " |")
    for name, side in sides.items():
        lines += ["", f"{name}: {json.dumps(side['figures'])}"]
        if side["extrapolated"]:
            lines.append(f"{name}: search and vote are extrapolated from a part of the work.")
    if sides.keys() >= set(SIDES):
        theirs, ours = (sides[name]["seconds"] for name in SIDES)
        ratios = [
            f"{phase} {theirs[phase] / ours[phase]:.1f}" for phase in ("search", "vote", "total")
        ]
        lines += ["", f"published over ours: {', '.join(ratios)}"]
    return "\n".join(lines) + "\n"


def _busy(side: Mapping[str, Mapping[str, object]], phase: str) -> str:
    value = side["busy"].get(phase)
    return "" if value is None else f"{value:.0f}"


def _summary(side: Side, busy: GpuBusy) -> dict[str, object]:
    """Return the seconds of each phase, extrapolated where a part of the work was done."""
    spans = {name: (begin, end) for name, begin, end in side.spans()}
    seconds = {name: end - begin for name, (begin, end) in spans.items()}
    factors = side.figures.get("factors")
    for phase, factor in factors.items() if isinstance(factors, dict) else ():
        seconds[phase] *= factor
    return {
        "seconds": {
            **{name: round(value, 2) for name, value in seconds.items()},
            "total": round(sum(seconds.values()), 2),
        },
        "busy": {name: busy.percent(*span) for name, span in spans.items()},
        "extrapolated": isinstance(factors, dict) and any(each != 1 for each in factors.values()),
        "figures": side.figures,
    }


def _ours(options: argparse.Namespace, side: str) -> Side:
    name = side.replace(" ", "-")
    place, out = options.out / name, options.out / f"{name}-events.json"
    shutil.rmtree(place, ignore_errors=True)
    arguments = ["run", str(options.spec), "--out", str(place)]
    if side == ONE_ENGINE:
        noted = [str(out), *arguments]
        began, ended = _run(
            "benchmarks.pipeline.watched_run", noted, options.out, name, MODNORM_DEVICES=""
        )
    else:
        began, ended = _run("modnorm", arguments, options.out, name)
    run = load_run(place)
    timings = run.timings()
    phases = timings["phases"]
    assert isinstance(phases, dict)
    calibrate = datetime.fromisoformat(str(timings["created"])).timestamp() + phases["pending"]
    voted = datetime.fromisoformat(str(timings["ended"])).timestamp()
    vote = voted - phases["voting"]
    begins = {
        "start": began,
        "calibrate": calibrate,
        "load": calibrate + phases.get("calibrating", 0.0),
        "search": vote - phases["selecting"],
        "vote": vote,
        "report": voted,
    }
    figures: dict[str, object] = {"metric": run.ensemble().metric}
    if side == ONE_ENGINE:
        events, _ = read_events(out)
        models = _models(events, run.document["data"]["selection"]["rows"])
        figures |= {
            "gap between candidates, ms": _gaps(models["selection"]),
            "gap between experts, ms": _gaps(models["heldout"]),
            **{f"{split} models": len(found) for split, found in models.items()},
        }
        begins["search"] = models["selection"][0].began
    return Side(begins, ended, figures)


def _published(spec: ExperimentSpec, options: argparse.Namespace) -> Side:
    out = options.out / "published-events.json"
    arguments = [str(out), str(options.spec)]
    for name in _LIMITS:
        if (value := getattr(options, name)) is not None:
            arguments += [f"--{name}", str(value)]
    began, ended = _run("benchmarks.pipeline.published", arguments, options.out, "published")
    events, found = read_events(out)
    scored, voted = int(str(found["candidates"])), int(str(found["experts"]))
    size, most = spec.population.size, max(spec.population.ensemble_sizes)
    figures = {**found, "factors": {"search": size / scored, "vote": most / voted}}
    begins = {event.name: event.at for event in events if event.name in PHASES}
    return Side({"start": began, **begins}, ended, figures)


def _run(
    module: str, arguments: Sequence[str], out: Path, name: str, **environment: str
) -> tuple[float, float]:
    """Run a module in a process; return the times of its start and its end.

    Raises:
        SystemExit: it failed.
    """
    cache = out / f"{name}-cache"
    shutil.rmtree(cache, ignore_errors=True)
    variables = {
        **inherited_environment(),
        "MODNORM_CACHE_DIR": str(cache),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        **environment,
    }
    began = time.time()
    with (out / f"{name}.log").open("w") as log:
        ended = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if ended.returncode:
        raise SystemExit(f"{name} ended with {ended.returncode}: see {out / name}.log")
    return began, time.time()


@dataclass(frozen=True, slots=True)
class Model:
    """A model that answered rows: the times of its begin, of its first tokens and of its end."""

    began: float
    first: float
    ended: float


def _models(events: Sequence[Event], selection_rows: int) -> Mapping[str, Sequence[Model]]:
    """Return the models of each split in order; checks of the engine come before them.

    The first request of as many rows as are selected on begins the selection. Its first row marks
    the others.
    """
    models: dict[str, list[Model]] = {"selection": [], "heldout": []}
    mark, began, first, split = "", 0.0, 0.0, ""
    for event in events:
        if event.name == "answer":
            mark = mark or (event.first if event.rows == selection_rows else "")
            split = "" if not mark else "selection" if event.first == mark else "heldout"
            began = first = event.at
        elif event.name == "token":
            first = event.at
        elif event.name == "answered" and split:
            models[split].append(Model(began, first, event.at))
    return models


def _gaps(models: Sequence[Model]) -> Mapping[str, float | None]:
    """Return the milliseconds from the end of one model to the first tokens of the next."""
    gaps = [1e3 * (after.first - before.ended) for before, after in pairwise(models)]
    slow = quantile(gaps, 0.9)
    return {
        "median": round(median(gaps), 1) if gaps else None,
        "p90": None if slow is None else round(slow, 1),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.pipeline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spec", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=(*SIDES, ONE_ENGINE))
    parser.add_argument("--candidates", type=int, help="of the published way that are timed")
    parser.add_argument("--experts", type=int, help="of the published way that are timed")
    parser.add_argument("--seconds", type=float, help="limit of each of its two loops")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
