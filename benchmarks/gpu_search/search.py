"""Time of a search on one GPU: the published loop and this project on the same work.

    python -m benchmarks.gpu_search search MODEL --out FILE [--only published mps3 mps3+stop ...]

Contenders evaluate the same candidates (`workload`) one after the other. Results go to FILE
as they come. A later call with the same settings skips contenders with results. So several
commands on one kind of GPU and CPU can share a search. After `--seconds` a contender begins no
further candidate, and finishes those it has parked; then seconds per candidate are compared.

Exits with 1 if scores, lengths or texts of answers differ from the draws. It also does so if a
candidate is missing although there was time, or if early stops change the K best of the plain
loop. The results name what is wrong.
"""

import argparse
import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import numpy as np

from benchmarks.gpu_search.candidate_outcome import CandidateOutcome, together
from benchmarks.gpu_search.child_processes import measured_by
from benchmarks.gpu_search.contenders import Contender, Pool, contender_named, pool_of
from benchmarks.gpu_search.driver import SearchPlan, search
from benchmarks.gpu_search.driver_messages import ContenderSettings
from benchmarks.gpu_search.floor import Size
from benchmarks.gpu_search.report_tables import print_report
from benchmarks.gpu_search.result_file import ResultFile
from benchmarks.gpu_search.workload import RATES, SaidText, Workload, drawn_scores
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.search.ranking import rank

DEFAULT = ("published", "one", "one+stop", "mps2", "mps3", "mps4", "mps3+stop")
_POOLS = ("published", "one", "one+drafts", "mps", "mps+drafts")
_COPIED = 2**32
"""Bytes of the copy that measures bandwidth; less for a small model."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    usual = Workload()
    parser.add_argument("model", help="checkpoint, for example of make-model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=DEFAULT, metavar="NAME")
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--rates", choices=sorted(RATES), default=usual.rates)
    parser.add_argument("--rows", type=int, default=usual.rows)
    parser.add_argument("--median", type=int, default=usual.median)
    parser.add_argument("--cap", type=int, default=usual.cap)
    parser.add_argument("--texts", type=Path, help="texts that the model says, from `record`")
    parser.add_argument("--seed", type=int, default=usual.seed)


def run(options: argparse.Namespace) -> int:
    """Run the contenders without results and print all results."""
    workload = _workload(options)
    results = ResultFile(options.out, _settings(options, workload))
    texts = str(options.texts.absolute()) if options.texts else ""
    settings = ContenderSettings(options.model, workload, options.candidates, texts=texts)
    pending = [contender_named(name) for name in options.only if name not in results.contenders]
    pending.sort(key=_start_order)
    if pending:
        results.found_on(_floor(options.model))
    for _, group in groupby(pending, key=lambda one: one.pool):
        _run_pool(list(group), settings, options, results)
    print_report(results.content)
    return 0 if all(figures["right"] for figures in results.contenders.values()) else 1


def _workload(options: argparse.Namespace) -> Workload:
    config = resolve_checkpoint(options.model).config
    return Workload(
        rows=options.rows,
        median=options.median,
        cap=options.cap,
        rates=options.rates,
        vocabulary=int(str(config["vocab_size"])),
        seed=options.seed,
    )


def _settings(options: argparse.Namespace, workload: Workload) -> dict[str, object]:
    """Return the settings that comparable results share."""
    digest = resolve_checkpoint(options.model).digest
    sizes = {"candidates": options.candidates, "experts": options.experts}
    if options.texts:
        sizes["texts"] = 1
    return {"model": digest, **sizes, **asdict(workload)}


def _floor(model: str) -> dict[str, object]:
    """Return the bytes of weights, the GPU with its bandwidth, and the CPU."""
    layout = physical_layout(resolve_checkpoint(model).config)
    weights = 2 * sum(tensor.numel for tensor in layout)
    size = Size(min(_COPIED, 16 * weights))
    machine = measured_by("copy", "benchmarks.gpu_search.floor", size)
    return {"weight_bytes": weights, **(dict(machine) if isinstance(machine, dict) else {})}


def _start_order(contender: Contender) -> tuple[int, int, bool]:
    order = _POOLS.index(contender.pool)
    return order, contender.engines, contender.stops


def _run_pool(
    contenders: Sequence[Contender],
    settings: ContenderSettings,
    options: argparse.Namespace,
    results: ResultFile,
) -> None:
    began = time.perf_counter()
    floor = results.content["floor"]
    memory, weights = floor["memory"], floor["weight_bytes"]
    with pool_of(contenders, settings, memory=memory, weights=weights) as pool:
        start = round(time.perf_counter() - began, 1)
        for contender in contenders:
            figures = _run(contender, pool, settings, options)
            results.add(contender.name, {**figures, "start_seconds": start})


def _run(
    contender: Contender, pool: Pool, settings: ContenderSettings, options: argparse.Namespace
) -> dict[str, object]:
    print(f"{contender.name}: {contender.engines} engine(s)", flush=True)
    plan = SearchPlan(
        options.candidates,
        options.experts if contender.stops else None,
        options.seconds,
    )
    outcomes, seconds = search(pool.engines[: contender.engines], plan)
    busy = sum(one.switch + one.generate + one.judge for one in outcomes)
    expected = drawn_scores(settings.workload, plan.candidates, said_texts(settings))
    wrong = wrongs(outcomes, expected, options.experts, late=seconds > plan.seconds)
    return {
        "engines": contender.engines,
        "candidates": len(outcomes),
        "stopped": sum(one.score is None for one in outcomes),
        "seconds": seconds,
        "seconds_a_candidate": seconds / len(outcomes),
        "switch": sum(one.switch for one in outcomes),
        "generate": sum(one.generate for one in outcomes),
        "judge": sum(one.judge for one in outcomes),
        "waiting": seconds * contender.engines - busy,
        "steps": sum(one.steps for one in outcomes),
        "steps_by_batch": together([one.classes for one in outcomes]),
        "right": not wrong,
        "wrong": wrong,
        "environment": dict(pool.environment),
    }


def said_texts(settings: ContenderSettings) -> SaidText | None:
    """Return the text of an answer by candidate, row and tokens; None if the model says noise."""
    if not settings.texts:
        return None
    texts = np.load(settings.texts, mmap_mode="r")
    encoder = PromptEncoder(resolve_checkpoint(settings.model))
    return lambda candidate, row, tokens: encoder.answer(
        texts[candidate % len(texts), row, :tokens].tolist()
    )


def wrongs(
    outcomes: Sequence[CandidateOutcome],
    expected: Mapping[int, float],
    experts: int,
    *,
    late: bool,
) -> dict[str, int]:
    """Return how many results differ from the draws, by kind; empty if all is right.

    `scores` counts candidates, `answers` those of another length or text, and `missing` candidates
    without an outcome, unless the search is `late`. `best` counts those of the plain loop's best
    that are not where they belong; it is left out if candidates are missing.
    """
    scores = {one.candidate: one.score for one in outcomes if one.score is not None}
    missing = len(expected.keys() - {one.candidate for one in outcomes})
    best, plain = (
        rank([ranked.get(index) for index in range(len(expected))], len(expected))[:experts]
        for ranked in (scores, expected)
    )
    found = {
        "scores": sum(score != expected[candidate] for candidate, score in scores.items()),
        "answers": sum(one.astray for one in outcomes),
        "missing": 0 if late else missing,
        "best": 0 if missing else sum(map(operator.ne, best, plain)) + len(plain) - len(best),
    }
    return {kind: count for kind, count in found.items() if count}
