"""Datasets as JSON lines, which people and other trainers can read.

Each line has `prompt` and `completion`, chat messages in TRL's format of prompts and completions,
and the provenance of the answer: training row, vote, round and expert.
"""

import json
from collections.abc import Callable, Iterable, Sequence

from modnorm.distillation.examples import ChosenExample
from modnorm.tasks.protocol import Message


def encode_examples(
    examples: Iterable[ChosenExample], prompt_of: Callable[[int], Sequence[Message]]
) -> list[str]:
    """Return each example as one line of JSON."""
    return [_line(example, prompt_of(example.answer.row)) for example in examples]


def merged_lines(earlier: Sequence[str], later: Sequence[str]) -> list[str]:
    """Return the lines of two datasets, without those of `later` that repeat an answer."""
    known = {_identity(line) for line in earlier}
    return [*earlier, *(line for line in later if _identity(line) not in known)]


def _line(example: ChosenExample, prompt: Sequence[Message]) -> str:
    answer = example.answer
    content = {
        "prompt": [{"role": each.role, "content": each.content} for each in prompt],
        "completion": [{"role": "assistant", "content": answer.completion}],
        "row": answer.row,
        "answer": answer.vote,
        "vote": example.vote,
        "agrees": example.agrees,
        "tokens": answer.tokens,
        "round": example.round,
        "expert": {"candidate": answer.candidate, "rank": answer.rank, "sample": answer.sample},
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _identity(line: str) -> tuple[int, str]:
    """Return training row and answer of a line."""
    content = json.loads(line)
    return content["row"], content["completion"][0]["content"].strip()
