"""The published way to run a spec, written again from facts of its code.

    python -m benchmarks.pipeline.published EVENTS SPEC [--candidates N] [--experts K]

A candidate is added to the weights, all rows are answered in one call of one eager engine, the
candidate is subtracted, and then the answers are scored one after the other. The experts of the
largest (N, K) answer the held-out rows in the same way, and their votes are counted.

It has three advantages over the published code: no Ray actor is between driver and engine, this
project calibrates the profile, and limits stop it after a part of the work.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from pathlib import Path

import torch
from vllm import LLM, SamplingParams
from vllm.platforms import current_platform

from benchmarks.pipeline.recording import EventLog
from modnorm.calibration.calibrate import calibrate, calibration_prompts
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client.settings import ClientSettings
from modnorm.perturbation.methods import build_scale_map, needs_profile
from modnorm.perturbation.sampling import population_seeds
from modnorm.search.ranking import mean_reward, rank
from modnorm.search.voting import plurality
from modnorm.spec import DataSpec, ExperimentSpec, load_spec
from modnorm.spec_checks import task_of
from modnorm.tasks.protocol import Judgement, Row
from modnorm.tasks.row_loading import load_data
from modnorm.tasks.task_errors import render_prompts

WORKER = "benchmarks.pipeline.published_worker.PublishedWorker"
_CPU = {"kv_cache_memory_bytes": 2**28, "max_model_len": 2048}
_GPU = {"gpu_memory_utilization": 0.75}


class PublishedRun:
    def __init__(self, spec: ExperimentSpec, log: EventLog) -> None:
        self._spec, self._log = spec, log
        self._task = task_of(spec)
        self._checkpoint = resolve_checkpoint(spec.model.name, spec.model.revision)
        self._encoder = PromptEncoder(self._checkpoint)
        self._folders = ClientSettings().split_folders
        population = spec.population
        self._seeds = population_seeds(population.seed, population.size, population.pool)
        rows = self._rows(spec.task.selection)
        self._sensitivities = self._calibrate(rows)
        log.note("load")
        self._engine = self._start()
        log.note("search")
        self._scale()

    def search(self, limit: "Limit") -> Sequence[float]:
        """Score candidates; return the rewards of those within the limit."""
        rows = self._rows(self._spec.task.selection)
        prompts = self._prompts(rows)
        return [
            mean_reward([one.reward for one in self._judged(seed, rows, prompts)])
            for seed in limit.of(self._seeds)
        ]

    def vote(self, experts: Sequence[int], limit: "Limit") -> tuple[int, float]:
        """Return the number of experts within the limit, and the accuracy of their vote."""
        rows = self._rows(self._spec.task.heldout)
        prompts = self._prompts(rows)
        sheets: dict[int, Sequence[Judgement]] = {}
        for expert in limit.of(sorted(experts)):
            sheets[expert] = self._judged(self._seeds[expert], rows, prompts)
        ranked = [sheets[expert] for expert in experts if expert in sheets]
        right = sum(map(_is_right, zip(*ranked, strict=True)))
        return len(sheets), right / len(rows)

    def _rows(self, source: DataSpec) -> Sequence[Row]:
        return load_data(self._task, source, field="task", folders=self._folders).rows

    def _prompts(self, rows: Sequence[Row]) -> list[list[int]]:
        return [self._encoder.encode(one) for one in render_prompts(self._task, rows, "row")]

    def _calibrate(self, rows: Sequence[Row]) -> Sequence[Mapping[str, float]] | None:
        self._log.note("calibrate")
        if not needs_profile(self._spec.method.name):
            return None
        settings = self._spec.calibration
        prompts = calibration_prompts(self._prompts(rows[: settings.examples]), settings)
        profile = calibrate(self._checkpoint, prompts, settings, task=self._task.name)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return profile.sensitivities

    def _start(self) -> LLM:
        return LLM(
            model=str(self._checkpoint.directory),
            dtype="bfloat16",
            tensor_parallel_size=1,
            enable_prefix_caching=False,
            enforce_eager=True,
            disable_log_stats=True,
            worker_extension_cls=WORKER,
            **(_CPU if current_platform.is_cpu() else _GPU),
        )

    def _scale(self) -> None:
        """Give the worker the scale of each tensor; isotropic noise has none."""
        scales = None
        if self._spec.method.name != "randopt":
            found = build_scale_map(
                self._spec.method.name,
                self._checkpoint,
                masses=self._spec.method.masses,
                sensitivities=self._sensitivities,
            )
            scales = {row.name: inf if row.scale is None else row.scale for row in found.tensors}
        self._engine.collective_rpc("published_learn", args=(scales,))

    def _judged(
        self, seed: int, rows: Sequence[Row], prompts: Sequence[Sequence[int]]
    ) -> Sequence[Judgement]:
        """Return the judged answers of one candidate, scored after it was subtracted."""
        self._change(seed, 1)
        self._log.note("answer", len(rows))
        cap = self._spec.task.max_tokens or self._task.max_tokens
        params = SamplingParams(temperature=0.0, seed=42, max_tokens=cap)
        requests = self._engine.generate(
            [{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False
        )
        self._log.note("answered")
        self._change(seed, -1)
        texts = [request.outputs[0].text for request in requests]
        return [self._task.judge(row, text) for row, text in zip(rows, texts, strict=True)]

    def _change(self, seed: int, sign: int) -> None:
        arguments = (seed, self._spec.method.radius, sign)
        self._engine.collective_rpc("published_change", args=arguments)


class Limit:
    """Ends a loop after a number of turns or of seconds, whichever comes first."""

    def __init__(self, turns: int | None, seconds: float | None) -> None:
        self._turns = turns
        self._end = None if seconds is None else time.monotonic() + seconds

    def of(self, values: Sequence[int]) -> Iterator[int]:
        """Yield the values within the limit, at least one."""
        for turn, value in enumerate(islice(values, self._turns)):
            if turn and self._end is not None and time.monotonic() > self._end:
                return
            yield value


def _is_right(judged: Sequence[Judgement]) -> bool:
    return plurality([one.vote for one in judged], [one.correct for one in judged]).correct


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("events", type=Path)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--candidates", type=int)
    parser.add_argument("--experts", type=int)
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    log, spec = EventLog(options.events), load_spec(options.spec)
    run = PublishedRun(spec, log)
    rewards = run.search(Limit(options.candidates, options.seconds))
    experts = rank(rewards, len(rewards))[: max(spec.population.ensemble_sizes)]
    log.note("vote")
    voted, accuracy = run.vote(experts, Limit(options.experts, options.seconds))
    log.note("report")
    log.write(candidates=len(rewards), experts=voted, accuracy=accuracy)


if __name__ == "__main__":
    main()
