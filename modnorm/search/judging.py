"""Completions, judged beside the generation."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from typing import Self

from modnorm.engines.protocol import Completion, Finish
from modnorm.errors import IncompatibleError
from modnorm.tasks.protocol import Row, Task
from modnorm.tasks.task_errors import attribute_to_task


@dataclass(frozen=True, slots=True)
class Answer:
    """What the candidate says to one row, judged."""

    row: int
    """Index of the row."""
    completion: str
    reward: float
    """Selection reward."""
    vote: str | None
    """Vote key; None when there is no valid answer."""
    correct: bool
    """Whether the vote, taken alone, is right."""
    tokens: int
    """Generated tokens, the stop token included."""
    truncated: bool
    """Whether the completion cap ended it."""


class Judging:
    """Judges completions as they come; what is left is dropped on leaving the context.

    Args:
        judges: Where they are judged.
        task: Judges them.
        rows: The rows that they answer.
        called: What the row of an index is called in errors.
    """

    def __init__(
        self,
        judges: Executor,
        task: Task,
        rows: Sequence[Row],
        called: Callable[[int], str] = "row {}".format,
    ) -> None:
        self._judges = judges
        self._task = task
        self._rows = rows
        self._called = called
        self._judged: dict[int, Future[Answer]] = {}
        self._unread: list[Future[Answer]] = []
        self.rewards: list[float] = []
        """Of the answers that were judged when it was looked at last, in no order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Judge no more of them."""
        for judged in self._judged.values():
            judged.cancel()

    def is_over(self, within: float) -> bool:
        """Wait for so many seconds at most; return whether all completions are judged."""
        return not wait(self._judged.values(), timeout=within).not_done

    @property
    def count(self) -> int:
        """Completions that came."""
        return len(self._judged)

    @property
    def total(self) -> int:
        """Completions that there will be."""
        return len(self._rows)

    @property
    def complete(self) -> bool:
        """Whether all completions came."""
        return len(self._judged) == len(self._rows)

    def judge(self, completion: Completion) -> None:
        """Have a completion judged."""
        row = self._rows[completion.index]
        called = self._called(completion.index)
        judged = self._judges.submit(_judge, self._task, row, completion, called)
        self._judged[completion.index] = judged
        self._unread.append(judged)

    def look(self) -> None:
        """Take in the rewards that have become known."""
        unread: list[Future[Answer]] = []
        for judged in self._unread:
            if judged.done():
                self.rewards.append(judged.result().reward)
            else:
                unread.append(judged)
        self._unread = unread

    def answers(self) -> tuple[Answer, ...]:
        """Wait for all answers, in row order."""
        return tuple(self._judged[index].result() for index in range(len(self._rows)))

    def finished(self) -> tuple[Answer, ...]:
        """Return the answers that are judged by now, in row order."""
        judged = (self._judged[index] for index in sorted(self._judged))
        return tuple(each.result() for each in judged if each.done())


def _judge(task: Task, row: Row, completion: Completion, called: str) -> Answer:
    """Judge a completion.

    Raises:
        IncompatibleError: the task's code raises, as it would on every machine.
        OSError: what it needs of this machine failed; another may do better.
    """
    with attribute_to_task(task, called, IncompatibleError, but=(OSError,)):
        judgement = task.judge(row, completion.text)
        return Answer(
            row=completion.index,
            completion=completion.text,
            reward=judgement.reward,
            vote=judgement.vote,
            correct=judgement.correct,
            tokens=completion.tokens,
            truncated=completion.finish is Finish.LENGTH,
        )
