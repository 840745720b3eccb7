import pytest
import torch

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.errors import InvalidInputError
from modnorm.radius.displacement import check_prompts, make_batches, outputs


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
