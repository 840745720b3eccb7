"""Datasets of prompts and completions, in TRL's conversational format.

One JSON object a line; further keys, such as the provenance of an answer, are ignored:

    {"prompt": [{"role": "user", "content": "..."}],
     "completion": [{"role": "assistant", "content": "..."}]}
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modnorm.errors import InvalidInputError
from modnorm.files import read_fault
from modnorm.tasks.protocol import Message


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A prompt and the answer that the student learns."""

    prompt: tuple[Message, ...]
    completion: str


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore")

    prompt: tuple[Message, ...] = Field(min_length=1)
    completion: tuple[Message]


def read_examples(path: Path) -> tuple[TrainingExample, ...]:
    """Return the examples of a dataset in file order."""
    try:
        # A JSON text may hold U+2028 and U+0085, at which `splitlines` would cut it.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise _unusable(f"cannot read {path}: {read_fault(error)}") from error
    if lines == [""]:
        raise _unusable(f"{path} has no examples")
    return tuple(_example(path, number, line) for number, line in enumerate(lines, 1))


def _example(path: Path, number: int, text: str) -> TrainingExample:
    try:
        line = _Line.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or "the line"
        raise _unusable(f"{path}, line {number}: {place}: {fault['msg']}") from error
    (answer,) = line.completion
    if answer.role != "assistant" or not answer.content:
        raise _unusable(f"{path}, line {number}: the completion is no answer of the assistant")
    return TrainingExample(line.prompt, answer.content)


def _unusable(message: str) -> InvalidInputError:
    return InvalidInputError(
        message,
        field="dataset",
        remedy="write a prompt and a completion a line, in TRL's conversational format",
    )
