"""Adapters in transformers and PEFT answer as their candidates do in an engine."""

import pytest
import torch

from modnorm.checkpoint.prompts import PromptEncoder
from tests.engines.exported_adapters import ANSWER_TOKENS

peft = pytest.importorskip("peft", reason="the environment of vLLM has no peft")


@pytest.fixture(scope="module")
def answer(float32):
    """Answer a prompt greedily with a model."""
    encoder = PromptEncoder(float32)

    def answer(model, prompt):
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            done = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=ANSWER_TOKENS,
            )
        return encoder.answer(done[0, len(prompt) :].tolist())

    return answer


def test_peft_answers_as_the_candidates_do(float32, adapters, prompts, answer):
    """Sums of floats differ in their order, so one near tie may be decided otherwise."""
    for adapter in adapters:
        model = peft.AutoPeftModelForCausalLM.from_pretrained(adapter.directory)
        answers = [answer(model, prompt) for prompt in prompts]
        pairs = list(zip(answers, adapter.answers, strict=True))
        assert sum(one == other for one, other in pairs) >= len(prompts) - 1, pairs
    assert adapters[0].answers != adapters[1].answers
