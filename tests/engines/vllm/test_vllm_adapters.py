"""Adapters in vLLM answer as their candidates do in an engine."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.geometry.scale_map import ScaleMap
from modnorm.prediction.ensemble_adapters import serving_command
from tests.engines.exported_adapters import ANSWER_TOKENS, Adapter

vllm = pytest.importorskip("vllm")


@pytest.fixture(scope="module")
def llm(float32: Checkpoint) -> Iterator[Any]:
    """Start vLLM on the base with room for two adapters."""
    started = vllm.LLM(
        model=str(float32.directory),
        skip_tokenizer_init=True,
        enable_lora=True,
        max_loras=2,
        max_lora_rank=16,
        max_model_len=512,
        max_num_seqs=16,
        kv_cache_memory_bytes=2**28,
        enforce_eager=True,
    )
    yield started
    started.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="module")
def answer(llm: Any, float32: Checkpoint) -> Callable[..., list[str]]:
    """Answer prompts greedily, each with an adapter, in one batch."""
    encoder = PromptEncoder(float32)

    def answer(prompts: Sequence[Sequence[int]], requests: Sequence[Any]) -> list[str]:
        limits = vllm.SamplingParams(
            temperature=0,
            max_tokens=ANSWER_TOKENS,
            detokenize=False,
            stop_token_ids=sorted(encoder.stop_ids),
        )
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        done = llm.generate(asked, limits, lora_request=list(requests), use_tqdm=False)
        return [encoder.answer(each.outputs[0].token_ids) for each in done]

    return answer


def test_adapters_in_one_batch_answer_as_their_candidates_do(
    answer: Callable[..., list[str]], adapters: Sequence[Adapter], prompts: Sequence[Sequence[int]]
) -> None:
    """Sums of floats differ in their order, so a near tie may be decided otherwise."""
    requests = [
        vllm.lora.request.LoRARequest(adapter.directory.name, number, str(adapter.directory))
        for number, adapter in enumerate(adapters, 1)
    ]
    answers = answer(
        [prompt for _ in adapters for prompt in prompts],
        [request for request in requests for _ in prompts],
    )
    expected = [text for adapter in adapters for text in adapter.answers]
    pairs = list(zip(answers, expected, strict=True))
    assert sum(one == other for one, other in pairs) >= len(pairs) - 2, pairs


def test_the_serving_command_is_one_of_vllm(
    float32: Checkpoint, low_rank_map: ScaleMap, adapters: Sequence[Adapter]
) -> None:
    from vllm.entrypoints.cli.serve import ServeSubcommand  # noqa: PLC0415 - vLLM is optional
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415 - as above

    words = serving_command(float32, low_rank_map, Path("experts"), ("expert-1", "expert-2"))
    assert words[:2] == ("vllm", "serve")
    commands = FlexibleArgumentParser().add_subparsers()
    parsed = ServeSubcommand().subparser_init(commands).parse_args(list(words[2:]))
    assert (parsed.enable_lora, parsed.max_loras, parsed.max_lora_rank) == (True, 2, 16)
    assert [(each.name, each.path) for each in parsed.lora_modules] == [
        ("expert-1", "experts/expert-1"),
        ("expert-2", "experts/expert-2"),
    ]
