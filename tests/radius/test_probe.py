import pytest
import torch

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.errors import InvalidInputError
from modnorm.radius.displacement import (
    Probe,
    check_prompts,
    compared_positions,
    make_batches,
    outputs,
)


@pytest.fixture
def model(checkpoint):
    loaded = load_pretrained(checkpoint, dtype=torch.float32, attention="eager").eval()
    return loaded.requires_grad_(requires_grad=False)


def test_padding_on_the_right_and_all_but_the_last_position_compared(prompts):
    (one, two) = make_batches(prompts, 3)
    assert one.ids.shape == (3, 13)
    assert one.mask.sum(1).tolist() == [3, 13, 9]
    assert two.compared.tolist() == [[True, False]]
    for row, prompt in enumerate(prompts[:3]):
        assert one.ids[row, : len(prompt)].tolist() == prompt
        assert one.compared[row].nonzero().flatten().tolist() == list(range(len(prompt) - 1))
    total = sum(int(batch.compared.sum()) for batch in (one, two))
    assert total == compared_positions(prompts) == 23


def test_the_last_state_is_the_input_of_the_head(model, prompts):
    for batch in make_batches(prompts, 2):
        found = outputs(model, batch)
        with torch.inference_mode():
            seen = model.get_output_embeddings()(found.states[-1])
        torch.testing.assert_close(seen, found.logits, rtol=1e-5, atol=1e-5)
        assert len(found.states) == model.config.num_hidden_layers + 1


def test_neither_batches_nor_padding_nor_the_last_token_matter(model, prompts):
    alone = [outputs(model, batch) for batch in make_batches(prompts, 1)]
    together = [outputs(model, batch) for batch in make_batches(prompts, 4)]
    padded = next(make_batches(prompts, 4))
    padded.ids[padded.mask == 0] = 9
    for index, prompt in enumerate(prompts):
        padded.ids[index, len(prompt) - 1] = 17
    for name in ("logits", "states"):
        position = -2
        expected = torch.cat([getattr(one, name) for one in alone], dim=position)
        found = torch.cat([getattr(one, name) for one in together], dim=position)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        other = getattr(outputs(model, padded), name)
        torch.testing.assert_close(other, getattr(together[0], name), rtol=1e-4, atol=1e-5)


def test_the_base_is_at_no_distance_from_itself_and_another_model_is(model, prompts):
    probe = Probe(model, prompts, batch_size=2)
    still = probe.displacement()
    assert still.kl == 0
    assert set(still.states) == {0.0}
    model.get_input_embeddings().weight.data.mul_(1.1)
    moved = probe.displacement()
    assert moved.kl > 0
    assert moved.states[0] == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize(
    ("prompt", "message"), [([5], "1 tokens"), ([5] * 21, "21 tokens"), ([5, 60], "outside")]
)
def test_a_prompt_that_cannot_be_measured_whole_is_named(checkpoint, prompts, prompt, message):
    check_prompts(checkpoint, prompts, 20)
    with pytest.raises(InvalidInputError, match=message) as caught:
        check_prompts(checkpoint, [*prompts, prompt], 20)
    assert "prompt 4" in caught.value.message
    assert caught.value.field == "task.selection"
