"""The interface of a task: prompts, a selection reward, a vote and a metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Row = Mapping[str, object]
"""One example, JSON-serialisable, in the task's own schema."""


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message before the model's own template is applied."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A scorer's result for one completion."""

    reward: float
    """Selection reward of the completion."""
    vote: str | None
    """Vote key; None without a valid answer (paper: such answers receive no vote)."""
    correct: bool
    """Whether the vote is right for the metric; equal votes on one row are equally right."""


class QuestionTask(Protocol):
    """A task that accepts rows without the right answer, to predict it."""

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the question's columns of a raw row; drop the rest.

        Raises:
            InvalidInputError: the row breaks the schema; the error's field names the column.
        """

    def vote(self, row: Row, completion: str) -> str | None:
        """Return the vote key of a completion, `Judgement.vote` of the same completion."""


class PromptTask(Protocol):
    """A `QuestionTask` whose votes depend on the question, and can be read from its prompt."""

    def read_prompt(self, prompt: str) -> Row:
        """Return the columns of a question that its vote needs.

        Raises:
            InvalidInputError: the text is no prompt of this task.
        """


class Task(Protocol):
    """A benchmark by name and version; pure functions, safe to call from any thread."""

    @property
    def name(self) -> str:
        """Registered name: `countdown`."""

    @property
    def scorer(self) -> str:
        """Name and version of the scorer, recorded with each result: `countdown-v2`."""

    @property
    def max_tokens(self) -> int:
        """Completion cap of the paper's protocol table."""

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check one raw row and return it in the task's schema.

        Raises:
            InvalidInputError: the row breaks the schema; the message names the column.
        """

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return the prompt of the paper's template, before the chat template."""

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion. No completion makes it raise."""

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Return the held-out metric of one answer a row, a fraction in [0, 1].

        Args:
            rows: At least one row.
            correct: Whether each row's answer is right; False for a row without a vote.
        """


def stated_gold(task: object, row: Row) -> str | None:
    """Return what the method `gold` of a task says about a row, for people; None without it."""
    gold = getattr(task, "gold", None)
    return str(gold(row)) if callable(gold) else None


def prompt_text(messages: Sequence[Message]) -> str:
    """Return a prompt as one text: messages in order, a blank line between them.

    The name of its role, in brackets, precedes a message that is not the user's.
    """
    return "\n\n".join(
        message.content if message.role == "user" else f"[{message.role}]\n{message.content}"
        for message in messages
    )
