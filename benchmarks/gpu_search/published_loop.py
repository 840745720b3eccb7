"""The published loop as a contender: one eager engine, strictly sequential.

A candidate is added to the weights, all prompts are answered in one call, and the candidate is
subtracted again. Then the driver judges the answers while the GPU waits. The loop has two
advantages over the published code. Noise and norms cross no Ray actor, and vLLM does not
detokenise during generation: the text is built when all answers are complete.
"""

import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Protocol

import torch
from vllm import LLM, SamplingParams
from vllm.platforms import current_platform

from benchmarks.gpu_search.candidate_outcome import CandidateOutcome
from benchmarks.gpu_search.candidates import RADIUS, scale_map_of, seeds_of
from benchmarks.gpu_search.driver_messages import (
    WARM_UP,
    ContenderSettings,
    EvaluateCandidate,
    Free,
)
from benchmarks.gpu_search.workload import DrawnTask
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines.vllm.serialization import value_of
from modnorm.search.ranking import mean_reward

WORKER = "benchmarks.gpu_search.published_worker.PublishedWorker"
SPEAKER = "benchmarks.gpu_search.spoken_texts.PublishedSpeaker"
SHARE = 0.75
_CPU = {"kv_cache_memory_bytes": 2**28, "max_model_len": 2048}


class _Output(Protocol):
    token_ids: Sequence[int]


class _Request(Protocol):
    outputs: Sequence[_Output]


class PublishedLoop:
    """vLLM started as in the published code."""

    def __init__(self, settings: ContenderSettings) -> None:
        checkpoint = resolve_checkpoint(settings.model)
        memory = _CPU if current_platform.is_cpu() else {"gpu_memory_utilization": SHARE}
        self._engine = LLM(
            model=settings.model,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            tensor_parallel_size=1,
            enable_prefix_caching=False,
            enforce_eager=True,
            disable_log_stats=True,
            worker_extension_cls=SPEAKER if settings.texts else WORKER,
            **memory,
        )
        self._encoder = PromptEncoder(checkpoint)
        self._workload = settings.workload
        self._prompts = [{"prompt_token_ids": list(ids)} for ids in settings.workload.prompts()]
        self._seeds = seeds_of(settings.population)
        scales = {row.name: row.scale for row in scale_map_of(checkpoint).tensors}
        self._engine.collective_rpc("published_learn", args=(scales,))
        self._speaks = bool(settings.texts)
        if self._speaks:
            self._call("modnorm_load_texts", settings.texts)

    def warm_up(self) -> None:
        """Evaluate a candidate with short answers."""
        usual, self._workload = self._workload, self._workload.shortened(WARM_UP)
        self.evaluate(0)
        self._workload = usual

    def evaluate(self, candidate: int) -> CandidateOutcome:
        """Score a candidate."""
        rows = self._workload.table(candidate)
        lengths = self._workload.answers(candidate).lengths
        seed = self._seeds[candidate]
        if self._speaks:
            self._call("modnorm_speak", candidate)
        began = time.perf_counter()
        perturbed = _timed(lambda: self._change(seed, 1))
        requests: list[_Request] = []
        idle = time.thread_time()
        generated = _timed(lambda: requests.extend(self._generate(lengths)))
        busy = time.thread_time() - idle
        restored = _timed(lambda: self._change(seed, -1))
        task = DrawnTask(self._workload.cap)
        rewards = [
            task.judge(row, self._text(request)).reward
            for row, request in zip(rows, requests, strict=True)
        ]
        ended = time.perf_counter()
        switch = perturbed + restored
        return CandidateOutcome(
            candidate=candidate,
            score=mean_reward(rewards),
            began=began,
            ended=ended,
            switch=switch,
            generate=generated,
            judge=ended - began - switch - generated,
            classes={256: (max(lengths), generated, busy)},
            astray=sum(
                len(request.outputs[0].token_ids) != length
                for request, length in zip(requests, lengths, strict=True)
            ),
        )

    def close(self) -> None:
        """Free the model."""
        self._engine.llm_engine.engine_core.shutdown()

    @property
    def environment(self) -> dict[str, str]:
        """Description of device and versions."""
        return {"torch": str(torch.__version__), "engine": "vllm, eager", "graphs": "NONE"}

    def _call(self, method: str, argument: str | int) -> None:
        for rank in self._engine.collective_rpc(method, args=(argument,)):
            value_of(rank)

    def _change(self, seed: int, sign: int) -> None:
        self._engine.collective_rpc("published_change", args=(seed, RADIUS, sign))

    def _generate(self, lengths: Sequence[int]) -> Sequence[_Request]:
        params = [
            SamplingParams(
                temperature=0.0, seed=42, max_tokens=length, ignore_eos=True, detokenize=False
            )
            for length in lengths
        ]
        answers: Sequence[_Request] = self._engine.generate(self._prompts, params, use_tqdm=False)
        return answers

    def _text(self, request: _Request) -> str:
        return self._encoder.answer(request.outputs[0].token_ids)


def serve(connection: Connection, settings: ContenderSettings) -> None:
    """Start on request, report readiness, then evaluate candidates until None arrives."""
    if connection.recv() is None:
        return
    contender = PublishedLoop(settings)
    contender.warm_up()
    connection.send(contender.environment)
    while (message := connection.recv()) is not None:
        if isinstance(message, EvaluateCandidate):
            connection.send(contender.evaluate(message.candidate))
            connection.send(Free())
    contender.close()


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
