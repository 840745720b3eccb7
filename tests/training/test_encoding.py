"""Token ids of examples: prompts as engines read them, and a loss on answers only."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError
from modnorm.tasks.protocol import Message
from modnorm.training.trainer_setup import IGNORED, encode_examples, read_examples

ENCODER = PromptEncoder(resolve_checkpoint("tiny-thicket"))
TEXTS = st.text(st.characters(codec="ascii"), min_size=1, max_size=40)


@given(TEXTS, TEXTS)
def test_the_loss_is_on_the_answer_and_its_end(question, answer):
    prompt = (Message("user", question),)
    encoded = encode_examples([(prompt, answer)], ENCODER, 10_000)
    ((ids,), (labels,)) = encoded.input_ids, encoded.labels
    length = len(ENCODER.encode(prompt))
    assert ids[:length] == ENCODER.encode(prompt)
    assert ids[length:] == [*ENCODER.encode_text(answer), ENCODER.end_id]
    assert labels == [IGNORED] * length + ids[length:]
    assert ENCODER.end_id in ENCODER.stop_ids


def test_examples_that_are_too_long_are_left_out_whole():
    examples = [((Message("user", "1"),), "2" * count) for count in (4, 400, 8)]
    encoded = encode_examples(examples, ENCODER, 60)
    assert (len(encoded.input_ids), encoded.left_out) == (2, 1)
    assert encoded.longest == max(map(len, encoded.input_ids)) <= 60
    with pytest.raises(InvalidInputError, match="none of 3 examples"):
        encode_examples(examples, ENCODER, 5)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\r", "\x0c"])
def test_a_separator_in_an_answer_ends_no_line(tmp_path, separator):
    """A sampled answer may hold any character; datasets do not escape those above ASCII."""
    prompt, answer = Message("user", "u"), f"two{separator}parts"
    line = {
        "prompt": [{"role": "user", "content": "u"}],
        "completion": [{"role": "assistant", "content": answer}],
        "row": 3,
    }
    path = tmp_path / "dataset.jsonl"
    path.write_text(2 * f"{json.dumps(line, ensure_ascii=False)}\n", newline="")
    assert read_examples(path) == 2 * (((prompt,), answer),)
