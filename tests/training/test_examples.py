"""Datasets: further keys are ignored, and faults name the line."""

import json

import pytest

from modnorm.errors import InvalidInputError
from modnorm.tasks.protocol import Message
from modnorm.training.examples import TrainingExample, read_examples
from tests.faults import error_at

PROMPT = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
ANSWER = [{"role": "assistant", "content": "a"}]


@pytest.fixture
def write(tmp_path):
    def write(*lines):
        path = tmp_path / "examples.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    return write


def test_examples_are_read_in_order_without_their_provenance(write):
    line = {"prompt": PROMPT, "completion": ANSWER, "row": 3, "expert": {"candidate": 7}}
    other = {"prompt": PROMPT[1:], "completion": ANSWER}
    assert read_examples(write(json.dumps(line), json.dumps(other))) == (
        TrainingExample((Message("system", "s"), Message("user", "u")), "a"),
        TrainingExample((Message("user", "u"),), "a"),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: the line"),
        ("{}", "line 2: prompt"),
        (json.dumps({"prompt": [], "completion": ANSWER}), "line 2: prompt"),
        (json.dumps({"prompt": PROMPT, "completion": []}), "line 2: completion"),
        (json.dumps({"prompt": PROMPT, "completion": [*ANSWER, *ANSWER]}), "line 2: completion"),
        (json.dumps({"prompt": PROMPT, "completion": PROMPT[1:]}), "no answer of the assistant"),
    ],
)
def test_a_fault_names_its_line(write, line, message):
    good = json.dumps({"prompt": PROMPT, "completion": ANSWER})
    with error_at("dataset", message):
        read_examples(write(good, line))


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\r", "\x0c"])
def test_a_separator_in_an_answer_ends_no_line(write, separator):
    """A sampled answer may hold any character; datasets do not escape those above ASCII."""
    answer = [{"role": "assistant", "content": f"two{separator}parts"}]
    line = json.dumps({"prompt": PROMPT, "completion": answer}, ensure_ascii=False)
    (example, _) = read_examples(write(line, line))
    assert example.completion == f"two{separator}parts"


def test_a_dataset_needs_examples(write, tmp_path):
    with pytest.raises(InvalidInputError, match="no examples"):
        read_examples(write())
    absent = tmp_path / "absent.jsonl"
    with pytest.raises(InvalidInputError) as raised:
        read_examples(absent)
    assert raised.value.message == f"cannot read {absent}: No such file or directory"
