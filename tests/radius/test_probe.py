import pytest
import torch

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.errors import InvalidInputError
from modnorm.radius.displacement import Probe, check_prompts, make_batches, outputs


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
