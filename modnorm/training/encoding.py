"""Token ids and labels of examples, as the engines encode prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.errors import InvalidInputError
from modnorm.training.examples import TrainingExample

IGNORED = -100
"""Label of a token without a loss, in torch's cross-entropy."""


@dataclass(frozen=True, slots=True)
class EncodedExamples:
    """Examples as token ids."""

    input_ids: tuple[list[int], ...]
    """Prompt, completion and the token that ends an answer."""
    labels: tuple[list[int], ...]
    """The tokens of `input_ids`, `IGNORED` in the prompt."""
    left_out: int
    """Examples that were too long."""

    @property
    def longest(self) -> int:
        """Tokens of the longest example."""
        return max(map(len, self.input_ids))


def encode_examples(
    examples: Sequence[TrainingExample], encoder: PromptEncoder, longest: int
) -> EncodedExamples:
    """Encode examples; leave out those with more than `longest` tokens.

    A truncated answer would teach the student to stop in its middle.

    Raises:
        InvalidInputError: the chat template refuses a prompt, or all examples are too long.
    """
    kept_ids, kept_labels = [], []
    for example in examples:
        prompt = encoder.encode(example.prompt)
        answer = [*encoder.encode_text(example.completion), encoder.end_id]
        if len(prompt) + len(answer) <= longest:
            kept_ids.append(prompt + answer)
            kept_labels.append([IGNORED] * len(prompt) + answer)
    if not kept_ids:
        raise InvalidInputError(
            f"none of {len(examples):,} examples has at most {longest:,} tokens",
            field="training.max_length",
            remedy="raise it, or shorten the answers by task.max_tokens",
        )
    return EncodedExamples(tuple(kept_ids), tuple(kept_labels), len(examples) - len(kept_ids))
