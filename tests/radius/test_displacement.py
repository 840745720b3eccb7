import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.errors import InvalidInputError
from modnorm.radius.displacement import (
    ModelOutputs,
    check_prompts,
    displacement_of,
    make_batches,
    outputs,
    symmetric_kl,
)


def logits(seed, positions=5, vocabulary=40, spread=4.0):
    return spread * torch.randn(
        positions, vocabulary, generator=torch.Generator().manual_seed(seed)
    )


def plain_kl(p_logits, q_logits):
    """Compute both directions literally, in float64."""

    def log_softmax(x):
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    p, q = (log_softmax(x.double().numpy()) for x in (p_logits, q_logits))
    forward = (np.exp(p) * (p - q)).sum(-1)
    backward = (np.exp(q) * (q - p)).sum(-1)
    return (forward + backward) / 2


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([0.01, 1.0, 20.0]))
def test_the_divergence_is_symmetric_and_that_of_the_formula(seed, spread):
    base = logits(seed, spread=spread)
    other = base + 0.3 * spread * logits(seed + 1, spread=1.0)
    found = symmetric_kl(base, other)
    assert torch.equal(found, symmetric_kl(other, base))
    np.testing.assert_allclose(found.numpy(), plain_kl(base, other), rtol=2e-4, atol=1e-9)
    assert (found >= 0).all()


def test_every_position_has_equal_weight_in_any_batch():
    states = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(1)) * torch.arange(
        1.0, 8.0
    ).reshape(1, 7, 1)
    moved = states + torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(2))
    one, two = logits(1, positions=7), logits(2, positions=7)
    whole = displacement_of([(ModelOutputs(one, states), ModelOutputs(two, moved))])
    parts = displacement_of(
        (ModelOutputs(one[cut], states[:, cut]), ModelOutputs(two[cut], moved[:, cut]))
        for cut in (slice(0, 1), slice(1, 7))
    )
    assert parts.kl == pytest.approx(whole.kl)
    assert parts.hidden == pytest.approx(whole.hidden)
    assert whole.kl == pytest.approx(plain_kl(one, two).mean(), rel=1e-4)
    last, change = states[-1].double(), (moved - states)[-1].double()
    assert whole.hidden == pytest.approx(float(change.norm() / last.norm()))
    assert whole.hidden_rms == pytest.approx(float(change.square().mean().sqrt()))
    firsts = (moved - states)[0].double(), states[0].double()
    assert whole.states[0] == pytest.approx(float(firsts[0].norm() / firsts[1].norm()))


def test_a_displacement_that_is_not_finite_is_reported():
    broken = logits(1)
    broken[0, 0] = torch.nan
    states = torch.ones(1, 5, 2)
    pair = ModelOutputs(logits(1), states), ModelOutputs(broken, states)
    assert not displacement_of([pair]).is_finite


@pytest.fixture
def model(checkpoint):
    loaded = load_pretrained(checkpoint, dtype=torch.float32, attention="eager").eval()
    return loaded.requires_grad_(requires_grad=False)


def test_the_last_state_is_the_input_of_the_head(model, prompts):
    for batch in make_batches(prompts, 2):
        found = outputs(model, batch)
        with torch.inference_mode():
            seen = model.get_output_embeddings()(found.states[-1])
        torch.testing.assert_close(seen, found.logits, rtol=1e-5, atol=1e-5)
        assert len(found.states) == model.config.num_hidden_layers + 1


@pytest.mark.parametrize(("prompt", "message"), [([5], "1 tokens"), ([5] * 21, "21 tokens")])
def test_a_prompt_that_cannot_be_measured_whole_is_named(checkpoint, prompts, prompt, message):
    check_prompts(checkpoint, prompts, 20)
    with pytest.raises(InvalidInputError, match=message) as caught:
        check_prompts(checkpoint, [*prompts, prompt], 20)
    assert "prompt 4" in caught.value.message
    assert caught.value.field == "task.selection"
