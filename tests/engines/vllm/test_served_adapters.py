"""A served ensemble whose experts are adapters in vLLM, asked by the official client of OpenAI."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from multiprocessing import active_children
from typing import Any

import httpx
import openai
import pytest
import torch
import uvicorn

pytest.importorskip(
    "vllm", reason="runs in an environment with vLLM: `make test-vllm`, part of `make test`"
)

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines import EngineSettings, GenerationLimits, runs_adapters
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.engines.vllm.adapter_engine import AdapterEngine
from modnorm.errors import EngineError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, TaskIdentity
from modnorm.prediction.ranked_votes import Prediction
from modnorm.prediction.voting_experts import Questions, VotingExperts
from modnorm.serving.adapter_answers import AdapterAnswers
from modnorm.serving.answering import choose_answering
from modnorm.serving.api_keys import ApiKeys
from modnorm.serving.app import Server, build_app
from modnorm.serving.metrics import ServerMetrics
from modnorm.serving.request_bodies import ChatBody
from modnorm.serving.request_limit import RequestLimit
from modnorm.serving.served_ensemble import ServedEnsemble
from modnorm.spec import ModelSpec
from modnorm.tasks.questions import vote_key
from verification.labs.waiting import wait_until

KEY = "sk-0123456789abcdef"
CAP = 32
ROWS: Sequence[dict[str, object]] = [
    {"numbers": [44, 19, 35], "target": 98},
    {"numbers": [3, 5, 7], "target": 15},
    {"numbers": [19, 36, 55, 7], "target": 65},
]


@pytest.fixture(scope="module")
def base(float32: Checkpoint, bundled: Checkpoint) -> Checkpoint:
    """The bundled model: on a GPU vLLM has no adapters of a float32 base."""
    return bundled if torch.cuda.is_available() else float32


@pytest.fixture(scope="module")
def scale_map(base: Checkpoint) -> ScaleMap:
    return build_scale_map("randopt", base, rank=16, target_modules="all-linear")


@pytest.fixture(scope="module")
def ensemble(
    base: Checkpoint, scale_map: ScaleMap, draw: Callable[..., Descriptor]
) -> ServedEnsemble:
    """Three experts of rank 16, resolved."""
    engine, experts = TransformersEngine(base), []
    for seed in (1, 2, 3):
        with engine.candidate(draw(scale_map, seed, 0.01), scale_map) as resolved:
            experts.append(Expert(seed, resolved))
    engine.close()
    definition = EnsembleDefinition(
        ModelSpec(name=str(base.directory)),
        base.digest,
        TaskIdentity("countdown", "countdown-v1", None, CAP),
        scale_map,
        3,
        tuple(experts),
    )
    return ServedEnsemble(definition, base, 256)


@pytest.fixture(scope="module")
def merged(ensemble: ServedEnsemble) -> Sequence[Prediction]:
    """The votes of the same experts, written into the weights one after another."""
    asked = [ensemble.question(ChatBody(model="ensemble", row=row)) for row in ROWS]
    questions = Questions([each.row for each in asked], [each.prompt for each in asked])
    with closing(TransformersEngine(ensemble.base)) as engine:
        experts = VotingExperts(engine, ensemble.definition, ensemble.task, ask_all=True)
        return experts.predict(questions)


@pytest.fixture(scope="module")
def address(
    ensemble: ServedEnsemble, forked_processes: Callable[[], AbstractContextManager[None]]
) -> Iterator[str]:
    """Serve the ensemble in the way that `modnorm serve` chooses."""
    metrics = ServerMetrics()
    answering = choose_answering(ensemble, "vllm", metrics)
    assert isinstance(answering, AdapterAnswers)
    parts = Server(ensemble, answering, RequestLimit(8, metrics), metrics, ApiKeys((KEY,)), 0)
    config = uvicorn.Config(build_app(parts), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)

    async def serve() -> None:
        try:
            with forked_processes():
                await answering.start()
            await server.serve(sockets=[listener])
        finally:
            answering.stop()

    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive(), "the server started")
        assert server.started
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, model: str, row: dict[str, object], **more: Any) -> Any:
    return client.chat.completions.create(
        model=model, messages=[], extra_body={"row": row}, **more
    )


def open_requests(address: str) -> float:
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    (line,) = (each for each in lines if each.startswith("modnorm_serve_open_requests "))
    return float(line.split()[1])


def test_a_float32_base_has_no_adapters_on_a_gpu(
    float32: Checkpoint, bundled: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modnorm.engines._has_gpu", lambda: True)
    assert not runs_adapters("vllm", float32)
    assert runs_adapters("vllm", bundled)
    assert not runs_adapters("transformers", bundled)
    monkeypatch.setattr("modnorm.engines._has_gpu", lambda: False)
    assert runs_adapters("vllm", float32)
    assert not runs_adapters("auto", bundled)


def test_experts_answer_as_if_they_were_written_into_the_weights(
    client: openai.OpenAI, merged: Sequence[Prediction], base: Checkpoint
) -> None:
    """In float32 the two sums differ in their last bits, which may decide a near tie.

    A bfloat16 candidate was rounded to 8 bits, and an adapter is not: more answers may differ.
    """
    expected = [answer.completion for each in merged for answer in each.experts]
    found = [
        ask(client, f"expert-{rank}", row).choices[0].message.content
        for row in ROWS
        for rank in (1, 2, 3)
    ]
    equal = [one == other for one, other in zip(found, expected, strict=True)]
    least = len(equal) - 1 if CheckpointWeights(base).dtype == torch.float32 else 3
    assert sum(equal) >= least, list(zip(found, expected, strict=True))


def test_the_ensemble_votes_on_the_answers_of_its_adapters(
    client: openai.OpenAI, ensemble: ServedEnsemble
) -> None:
    for row in ROWS:
        vote = ask(client, "ensemble", row).model_extra["modnorm"]
        experts = vote["experts"]
        assert len(experts) + vote["skipped"] == 3
        question = ensemble.question(ChatBody(model="ensemble", row=row)).row
        assert question is not None
        keys = [vote_key(ensemble.task, question, each["completion"]) for each in experts]
        assert [each["vote"] for each in experts] == keys


def test_a_single_expert_streams_its_tokens(client: openai.OpenAI) -> None:
    whole = ask(client, "expert-2", ROWS[0])
    chunks = list(ask(client, "expert-2", ROWS[0], stream=True))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(texts) == whole.choices[0].message.content
    assert sum(map(bool, texts)) > 3
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_streaming_client_that_leaves_ends_its_request(
    client: openai.OpenAI, address: str
) -> None:
    with ask(client, "expert-1", ROWS[2], stream=True) as stream:
        next(iter(stream))
    wait_until(lambda: not open_requests(address), "the request ended")
    assert ask(client, "expert-1", ROWS[0]).choices[0].message.content


def test_hostile_requests_get_errors_and_the_others_answers(
    client: openai.OpenAI, address: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="expert-1", prompt="7 " * 300)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        ask(client.with_options(api_key="wrong"), "ensemble", ROWS[0])
    with ThreadPoolExecutor(40) as threads:
        asked = [threads.submit(ask, client, "ensemble", ROWS[0]) for _ in range(40)]
    failures = [each.exception() for each in asked]
    assert all(each is None or isinstance(each, openai.RateLimitError) for each in failures)
    assert failures.count(None) >= 8
    assert open_requests(address) == 0


def test_requests_of_a_killed_engine_get_errors_and_a_new_engine_answers(
    client: openai.OpenAI, address: str
) -> None:
    """Ask until the engine dies, and until its successor answers."""
    before = ask(client, "expert-1", ROWS[0]).choices[0].message.content
    (engine,) = active_children()
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask, client, "ensemble", row) for row in (*ROWS, *ROWS)]
        wait_until(lambda: open_requests(address), "requests are answered")
        engine.kill()
        failures = [each.exception() for each in asked]
    met = [each for each in failures if isinstance(each, openai.InternalServerError)]
    assert {each.type for each in met} == {"server_error"}
    assert len(met) + failures.count(None) == len(failures)
    assert httpx.get(f"{address}/healthz").status_code == 200
    wait_until(lambda: httpx.get(f"{address}/readyz").status_code == 200, "a new engine", pause=1)
    assert ask(client, "expert-1", ROWS[0]).choices[0].message.content == before
    assert engine not in active_children()
    assert open_requests(address) == 0


def test_a_request_that_vllm_drops_is_no_answer(
    ensemble: ServedEnsemble, forked_processes: Callable[[], AbstractContextManager[None]]
) -> None:
    """VLLM drops requests when its process is told to end; their texts are cut anywhere."""
    question = ensemble.question(ChatBody(model="ensemble", row=ROWS[0]))
    settings = EngineSettings(max_model_len=256, max_num_seqs=2)

    async def ask() -> None:
        engine = AdapterEngine(ensemble.base, None, 0, settings)
        await engine.start()
        try:
            limits = GenerationLimits(CAP)
            answer = engine.generate(None, question.prompt, limits, streams=True)
            await anext(answer)
            assert engine._llm is not None
            await engine._llm.abort("1")
            async for _ in answer:
                pass
        finally:
            engine.stop()

    with forked_processes(), pytest.raises(EngineError, match="abort"):
        asyncio.run(ask())
