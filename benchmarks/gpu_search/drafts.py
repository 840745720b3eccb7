"""Seconds a candidate with and without drafts from the population.

    python -m benchmarks.gpu_search drafts --out FILE [--large MODEL] [--candidates 24]

First the bundled model answers the public Countdown puzzles as candidates of both methods, with
and without drafts; the answers are compared. Then the large model, with random weights, says
recorded texts: answers of the small model, joined and cut to drawn lengths (`workload`). Engines
start at the same time on one GPU and measure one after the other. FILE gets one JSON a line.
"""

import argparse
import json
import operator
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.gpu_search.candidates import RADIUS, scale_map_of
from benchmarks.gpu_search.child_processes import Child, ending
from benchmarks.gpu_search.draft_messages import Answered, CandidateRequest, DraftSettings
from benchmarks.gpu_search.workload import Workload
from modnorm.calibration.calibrate import calibrate
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines.vllm.numerics import VARIABLE
from modnorm.perturbation.methods import build_scale_map
from modnorm.spec import CalibrationSpec, DataSpec
from modnorm.tasks import get_task
from modnorm.tasks.row_loading import load_rows

SMALL = "tiny-thicket"
METHODS = {"modular_norm": 0.64, "randopt": 0.012}
"""Methods with the radii that suit the small model."""
SPOKEN = "modular_norm"
"""Method whose candidates' answers the large model says."""
LIMIT = 240
"""Most tokens of the small model's answers."""
_MODULE = "benchmarks.gpu_search.draft_contender"
NONE, POPULATION = "none", "population"
BOTH = frozenset({NONE, POPULATION})
_SMALL_SHARE = 0.7
"""Part of the time after which the small model says no more texts."""
_SHARES = {"small": 0.1, "large": 0.3}
_CACHES = {"small": 2 * 2**30, "large": 10 * 2**30}
_START_SECONDS, _CANDIDATE_SECONDS = 280.0, 60.0
"""Longest times of a start and of a candidate."""
_SHORT = 3
"""Candidates with answers of one token."""
_FIRST_ROW = 2000
"""Token that names row 0, beyond the small model's vocabulary."""
_STRIDE = 37
"""Rows between the answers that a recorded text joins."""


@dataclass
class JsonLines:
    """Lines of JSON, written as they come."""

    path: Path

    def add(self, kind: str, **content: object) -> None:
        """Write a line."""
        line = json.dumps({"kind": kind, **content})
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--large", help="checkpoint with random weights, for example of make-model"
    )
    parser.add_argument(
        "--candidates", type=int, default=33, help="small model; a third with randopt"
    )
    parser.add_argument("--large-candidates", type=int, default=34)
    parser.add_argument("--large-plain", type=int, default=5, help="of these without drafts")
    parser.add_argument("--texts", type=Path, help="file for the texts, which `search` may say")
    parser.add_argument("--invariant", action="store_true", help="batch-invariant kernels")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--cap", type=int, default=Workload().cap)
    parser.add_argument("--seconds", type=float, default=330.0, help="of the whole command")


def run(options: argparse.Namespace) -> int:
    """Measure and print lines."""
    report, began = JsonLines(options.out), time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drafts-")))
        small = _pair("small", SMALL, options, stack)
        large = _pair("large", options.large, options, stack) if options.large else {}
        deadline = began + options.seconds * (_SMALL_SHARE if large else 1)
        texts = _measure_small(small, options, report, deadline)
        path = options.texts or folder / "texts.npy"
        np.save(path, _joined(texts, options.rows, options.cap))
        if large:
            _measure_large(large, path, options, report, began + options.seconds)
    return 0


def _pair(
    size: str, model: str, options: argparse.Namespace, stack: ExitStack
) -> dict[str, Child]:
    """Start an engine without and one with drafts."""
    plain = DraftSettings(
        model, drafts=False, share=_SHARES[size], cache_bytes=_CACHES[size],
        invariant=options.invariant,
    )  # fmt: skip
    settings = {NONE: plain, POPULATION: replace(plain, drafts=True)}
    # The child imports vLLM, which fixes its kernels, before it makes the engine.
    variables = {VARIABLE: str(int(options.invariant))}
    children = {
        name: Child(f"{size} {name}", _MODULE, one, variables) for name, one in settings.items()
    }
    for child in children.values():
        stack.enter_context(ending(child))
    return children


def _measure_small(
    engines: dict[str, Child], options: argparse.Namespace, report: JsonLines, deadline: float
) -> list[list[list[int]]]:
    """Measure the small model; return the answers of base and `SPOKEN` without drafts."""
    checkpoint = resolve_checkpoint(SMALL)
    prompts = _prompts(checkpoint, options.rows)
    maps = {method: _scale_map(method, checkpoint, prompts) for method in METHODS}
    engines = _started(engines, report)
    recorded: list[list[list[int]]] = []
    for method, asked in _candidates(maps, prompts, options):
        if recorded and time.monotonic() > deadline:
            break
        answers = _ask(engines, asked, report)
        if NONE not in answers:
            break
        said = {name: [list(one) for one in answer.tokens] for name, answer in answers.items()}
        if method in {"base", SPOKEN}:
            recorded.append(said[NONE])
        equal = sum(map(operator.eq, said[NONE], said.get(POPULATION, ())))
        for name, answered in answers.items():
            about = {"method": method, "seed": asked.seed, "drafts": name, "equal": equal}
            report.add("small", **about, **_figures(answered))
    return recorded


def _candidates(
    maps: dict[str, str], prompts: Sequence[Sequence[int]], options: argparse.Namespace
) -> Iterator[tuple[str, CandidateRequest]]:
    """Yield the base and the candidates, one method after the other."""
    yield "base", CandidateRequest(maps["randopt"], 0, 0.0, prompts, options.limit)
    for method, radius in METHODS.items():
        count = options.candidates if method == SPOKEN else options.candidates // 3
        for seed in range(1, count + 1):
            yield method, CandidateRequest(maps[method], seed, radius, prompts, options.limit)


def _measure_large(
    engines: dict[str, Child],
    path: Path,
    options: argparse.Namespace,
    report: JsonLines,
    deadline: float,
) -> None:
    """Measure the large model, the first candidates also without drafts."""
    checkpoint = resolve_checkpoint(options.large)
    workload = Workload(
        rows=options.rows, cap=options.cap, vocabulary=int(str(checkpoint.config["vocab_size"]))
    )
    scale_map, prompts = scale_map_of(checkpoint).to_json(), workload.prompts()
    engines = _started(engines, report)
    for child in engines.values():
        child.ask(str(path))
    # One token each: the switch, the prompts and the end. The first ones compile kernels.
    short = CandidateRequest(
        scale_map, 0, RADIUS, prompts, options.cap, spoken=0, lengths=[1] * options.rows
    )
    for _ in range(_SHORT):
        for drafts, answered in _ask(engines, short, report).items():
            report.add("prompts", drafts=drafts, **_figures(answered))
    for number in range(options.large_candidates):
        lengths = workload.answers(number).lengths
        candidate = CandidateRequest(
            scale_map, number, RADIUS, prompts, options.cap, spoken=number, lengths=lengths
        )
        names = BOTH if number < options.large_plain else frozenset({POPULATION})
        if time.monotonic() > deadline:
            return
        for drafts, answered in _ask(engines, candidate, report, names).items():
            sizes = [len(tokens) for tokens in answered.tokens]
            wrong = sum(map(operator.ne, sizes, lengths)) + answered.misspoken
            report.add("large", drafts=drafts, candidate=number, wrong=wrong, **_figures(answered))


def _joined(
    answers: Sequence[Sequence[Sequence[int]]], rows: int, cap: int
) -> "np.ndarray[tuple[int, int, int], np.dtype[np.int16]]":
    """Return texts of `cap` tokens: a candidate's answers to a row and to later ones, joined.

    The last token of an answer names the next row, as a prompt before it would.
    """
    texts = np.zeros((len(answers), rows, cap), dtype=np.int16)
    for candidate, given in enumerate(answers):
        for row in range(rows):
            joined: list[int] = []
            place = row
            while len(joined) < cap:
                joined += given[place % rows]
                place += _STRIDE
                joined[-1] = _FIRST_ROW + place % rows
            texts[candidate, row] = joined[:cap]
    return texts


def _started(engines: dict[str, Child], report: JsonLines) -> dict[str, Child]:
    """Return the engines that have started; report the others."""
    started = {}
    for name, child in engines.items():
        try:
            report.add("started", name=child.name, environment=child.answer(_START_SECONDS))
        except SystemExit as reason:
            report.add("failed", name=child.name, reason=str(reason))
        else:
            started[name] = child
    return started


def _ask(
    engines: dict[str, Child],
    candidate: CandidateRequest,
    report: JsonLines,
    names: frozenset[str] = BOTH,
) -> dict[str, Answered]:
    """Return the answers of the named engines; drop and report engines that fail."""
    answers: dict[str, Answered] = {}
    for name in sorted(engines.keys() & names):
        child = engines[name]
        child.tell(candidate)
        try:
            answers[name] = child.answer(_CANDIDATE_SECONDS)  # type: ignore[assignment]  # its only reply
        except SystemExit as reason:
            report.add("failed", name=child.name, reason=str(reason))
            del engines[name]
    return answers


def _figures(answered: Answered) -> dict[str, object]:
    sizes = [len(tokens) for tokens in answered.tokens]
    return {
        "seconds": round(answered.seconds, 4),
        "steps": answered.steps,
        "tokens": sum(sizes),
        "longest": max(sizes),
        "classes": {str(key): [steps, round(seconds, 4), round(cpu, 4)]
                    for key, (steps, seconds, cpu) in answered.classes.items()},
        "accepted": {str(key): value for key, value in answered.accepted.items()},
    }  # fmt: skip


def _prompts(checkpoint: Checkpoint, rows: int) -> list[list[int]]:
    task, encoder = get_task("countdown"), PromptEncoder(checkpoint)
    source = DataSpec(source="bundled:countdown-selection", limit=rows)
    return [
        list(encoder.encode(task.messages(row))) for row in load_rows(task, source, field="source")
    ]


def _scale_map(method: str, checkpoint: Checkpoint, prompts: Sequence[Sequence[int]]) -> str:
    """Return a method's scale map of the small model, calibrated if it needs it."""
    profile = None
    if method == "modular_norm":
        profile = calibrate(checkpoint, prompts, CalibrationSpec(), task="countdown")
    scale_map = build_scale_map(
        method, checkpoint, sensitivities=None if profile is None else profile.sensitivities
    )
    return scale_map.to_json()
