"""Judging of completions in threads, while the engine generates others."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Self

from modnorm.engines.protocol import Completion, Finish
from modnorm.search.answer import Answer
from modnorm.tasks.protocol import Row, Task
from modnorm.tasks.task_errors import judge


class AnswerJudge:
    """Judges a candidate's completions as they arrive; cancels the remaining ones on exit."""

    def __init__(
        self,
        judges: Executor,
        task: Task,
        rows: Sequence[Row],
        row_label: Callable[[int], str] = "row {}".format,
    ) -> None:
        self._judges = judges
        self._task = task
        self._rows = rows
        self._row_label = row_label
        self._answers: dict[int, Future[Answer]] = {}
        self._uncollected: list[Future[Answer]] = []
        self.rewards: list[float] = []
        """Rewards of the answers judged before the last `collect_rewards`, in no order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Cancel all judgements that have not begun."""
        for answer in self._answers.values():
            answer.cancel()

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; return whether all completions are judged."""
        return not wait(self._answers.values(), timeout=timeout).not_done

    @property
    def count(self) -> int:
        """Number of completions that have arrived."""
        return len(self._answers)

    @property
    def total(self) -> int:
        """Number of rows."""
        return len(self._rows)

    @property
    def complete(self) -> bool:
        """Whether all completions have arrived."""
        return len(self._answers) == len(self._rows)

    def judge(self, completion: Completion) -> None:
        """Queue a completion for judging."""
        row = self._rows[completion.index]
        label = self._row_label(completion.index)
        answer = self._judges.submit(_judge, self._task, row, completion, label)
        self._answers[completion.index] = answer
        self._uncollected.append(answer)

    def collect_rewards(self) -> None:
        """Add the rewards of newly judged answers to `rewards`."""
        unjudged: list[Future[Answer]] = []
        for answer in self._uncollected:
            if answer.done():
                self.rewards.append(answer.result().reward)
            else:
                unjudged.append(answer)
        self._uncollected = unjudged

    def answers(self) -> tuple[Answer, ...]:
        """Wait for all answers and return them in row order."""
        return tuple(self._answers[index].result() for index in range(len(self._rows)))

    def judged_answers(self) -> tuple[Answer, ...]:
        """Return the answers that are judged already, in row order."""
        answers = (self._answers[index] for index in sorted(self._answers))
        return tuple(answer.result() for answer in answers if answer.done())


def _judge(task: Task, row: Row, completion: Completion, row_label: str) -> Answer:
    """Judge a completion.

    Raises:
        IncompatibleError: the task's code raises or returns no judgement, as on every machine.
        OSError: a resource of this machine failed; another machine may succeed.
    """
    judgement = judge(task, row, completion.text, row_label)
    return Answer(
        row=completion.index,
        completion=completion.text,
        reward=judgement.reward,
        vote=judgement.vote,
        correct=judgement.correct,
        tokens=completion.tokens,
        truncated=completion.finish is Finish.LENGTH,
    )
