from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modnorm.engines import GenerationLimits, Sampling, causal
from modnorm.engines.transformers_engine import TransformersEngine

Prompts = Sequence[Sequence[int]]


def texts(
    engine: TransformersEngine, prompts: Prompts, sampling: Sampling | None = None
) -> list[tuple[str, int]]:
    done = engine.generate(prompts, GenerationLimits(48, sampling))
    return [(each.text, each.tokens) for each in sorted(done, key=lambda each: each.index)]


def test_a_sampled_completion_does_not_depend_on_the_others(
    bundled_engine: TransformersEngine, prompts: Prompts
) -> None:
    def sampled(asked: Prompts, seeds: Sequence[int]) -> list[tuple[str, int]]:
        return texts(bundled_engine, asked, Sampling(1.0, seeds))

    together = sampled([*prompts, *prompts], range(2 * len(prompts)))
    for index in (0, len(prompts) + 1):
        assert sampled([prompts[index % len(prompts)]], [index]) == [together[index]]


def test_tokens_are_drawn_in_proportion_to_their_probabilities() -> None:
    logits = torch.log(torch.tensor([[0.2, 0.5, 0.0, 0.3]]))
    drawn = [
        int(causal._sample(logits, causal.Draws(1.0, [number / 1_000]))) for number in range(1_000)
    ]
    counts = [drawn.count(token) for token in range(4)]
    assert counts == pytest.approx([200, 500, 0, 300], abs=2)


@given(
    logits=st.lists(st.floats(-5, 5), min_size=1, max_size=12),
    top_p=st.floats(0.01, 1.0),
    number=st.floats(0, 1, exclude_max=True),
)
def test_only_the_likeliest_tokens_are_drawn(
    logits: list[float], top_p: float, number: float
) -> None:
    scores = torch.tensor([logits], dtype=torch.float64)
    drawn = int(causal._sample(scores, causal.Draws(1.0, [number], top_p)))
    chances = torch.softmax(scores, dim=-1)[0]
    likelier = chances[chances > chances[drawn]].sum()
    assert likelier < top_p + 1e-9
