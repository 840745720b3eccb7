"""A conformance check for tasks, which a task's author runs.

    report = check_task(task, rows, references)
    report.require()

It needs a few raw rows and a right completion for each.
"""

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from modnorm.errors import InvalidInputError
from modnorm.tasks.columns import holds_half_pair
from modnorm.tasks.protocol import Judgement, Row, Task, stated_gold
from modnorm.tasks.task_errors import MAX_REWARD, is_judgement

MAX_SECONDS = 1.0
"""Longest time for judging a hostile completion of `HOSTILE_LENGTH` characters."""
HOSTILE_LENGTH = 10_000

_PIECES = (
    "<answer>", "</answer>", "<think>", "</think>", "\\boxed{", "}", "{", "####", "answer is", "=",
    "```python\n", "```", "\n", " ", "(", ")", "[", "]", "$", "\\", "^", "**", ",", ".", "-", "1",
    "9", "A", "\u00e9", "\u0664", "\x00", "\ud800",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a conformance check."""

    scorer: str
    checks: int
    failures: tuple[str, ...]

    def require(self) -> None:
        if self.failures:
            raise InvalidInputError(f"{self.scorer}: {'; '.join(self.failures)}", field="task")


def check_task(
    task: Task, rows: Sequence[Mapping[str, object]], references: Sequence[str]
) -> Report:
    """Check a task on two or more raw rows with different answers, and a right answer for each."""
    if len(rows) < 2 or len(rows) != len(references):
        raise InvalidInputError(
            "the check needs two rows or more, and one reference answer for each row", field="rows"
        )
    suite = _Suite(task, rows, references)
    outcomes = [outcome for check in suite.checks() for outcome in _outcomes(check)]
    failures = tuple(dict.fromkeys(outcome for outcome in outcomes if outcome))
    return Report(task.scorer, len(outcomes), failures)


class _Suite:
    """The checks; each yields one outcome a case, "" if the case passes."""

    def __init__(
        self, task: Task, raw: Sequence[Mapping[str, object]], references: Sequence[str]
    ) -> None:
        self._task = task
        self._raw = raw
        self._rows = [task.parse(row) for row in raw]
        self._references = references
        self._correct: dict[tuple[str, str], bool] = {}

    def checks(self) -> Sequence[Callable[[], Iterator[str]]]:
        return (
            self._identity,
            self._rows_are_stored,
            self._prompts,
            self._right_answers,
            self._wrong_answers,
            self._metric,
            self._hostile_completions,
            self._threads,
        )

    def _identity(self) -> Iterator[str]:
        task = self._task
        yield _unless(bool(task.name) and bool(task.scorer), "name and scorer must not be empty")
        yield _unless(
            type(task.max_tokens) is int and task.max_tokens > 0, "max_tokens must be positive"
        )
        yield _unless(task.scorer != task.name, "scorer must carry a version")

    def _rows_are_stored(self) -> Iterator[str]:
        for number, row in enumerate(self._rows):
            stored = json.loads(json.dumps(row))
            yield _unless(stored == row, f"row {number} changes when stored as JSON")
            yield _unless(
                self._task.parse(stored) == row, f"row {number} does not parse to itself"
            )
        for broken in ({}, dict.fromkeys(self._raw[0]), dict.fromkeys(self._raw[0], "\ud800")):
            yield self._refuses(broken)

    def _refuses(self, broken: Mapping[str, object]) -> str:
        try:
            self._task.parse(broken)
        except InvalidInputError as error:
            return _unless(error.field is not None, "a refused row must name its column")
        except Exception as error:  # noqa: BLE001 - a failure of the task, to be listed
            return (
                f"the row {broken!r} must be refused by an InvalidInputError that names its "
                f"column, not by {_described(error)}"
            )
        return f"the row {broken!r} must be refused"

    def _prompts(self) -> Iterator[str]:
        for number, row in enumerate(self._rows):
            messages = self._task.messages(row)
            yield _unless(bool(messages), f"row {number} has no prompt")
            roles = [message.role for message in messages]
            yield _unless(roles[-1:] == ["user"], f"the prompt of row {number} must end with user")
            yield _unless("system" not in roles[1:], "a system message comes first")
            gold = stated_gold(self._task, row)
            yield _unless(gold != "", f"the gold answer of row {number} must not be empty")
            again = self._task.messages(json.loads(json.dumps(row)))
            yield _unless(messages == again, f"the prompt of row {number} changes")

    def _right_answers(self) -> Iterator[str]:
        for number, (row, text) in enumerate(zip(self._rows, self._references, strict=True)):
            judgement = self._task.judge(row, text)
            yield _unless(judgement.correct, f"the reference of row {number} is not correct")
            yield _unless(judgement.reward > 0, f"the reference of row {number} has no reward")
            yield self._consistent(row, judgement)
            yield _unless(judgement == self._task.judge(row, text), "judgements change")

    def _wrong_answers(self) -> Iterator[str]:
        wrong = 0
        for index, row in enumerate(self._rows):
            others = [*self._references[:index], *self._references[index + 1 :]]
            judgements = [self._task.judge(row, text) for text in others]
            wrong += any(not judgement.correct for judgement in judgements)
            yield from (self._consistent(row, judgement) for judgement in judgements)
            empty = self._task.judge(row, "")
            yield _unless(empty.vote is None and not empty.correct, "no text must give no vote")
        yield _unless(wrong > 0, "the answers to other rows must not all be correct")

    def _consistent(self, row: Row, judgement: Judgement) -> str:
        """Return the fault of a judgement, also compared with equal votes on the same row."""
        vote = judgement.vote
        if vote is None:
            agrees = not judgement.correct
        else:
            key = json.dumps(row, sort_keys=True), vote
            agrees = self._correct.setdefault(key, judgement.correct) == judgement.correct
        return _unless(
            agrees and is_judgement(judgement) and vote != "",
            f"a judgement needs a reward up to {MAX_REWARD:g}, a vote of text that is not "
            "empty, and `correct` must follow from the row and the vote",
        )

    def _metric(self) -> Iterator[str]:
        count = len(self._rows)
        best = self._task.metric(self._rows, [True] * count)
        yield _unless(math.isclose(best, 1.0), f"right votes must have the metric 1, not {best}")
        none = self._task.metric(self._rows, [False] * count)
        yield _unless(none == 0, f"wrong votes must have the metric 0, not {none}")
        some = self._task.metric(self._rows, [True] + [False] * (count - 1))
        yield _unless(0 <= some < 1, f"a metric of some right votes must be below 1, not {some}")

    def _hostile_completions(self) -> Iterator[str]:
        for text in hostile_completions():
            started = time.perf_counter()
            judgement = self._task.judge(self._rows[0], text)
            seconds = time.perf_counter() - started
            vote = judgement.vote
            # It may pass on half a surrogate pair, which no completion of an engine holds.
            if vote is not None and holds_half_pair(vote):
                judgement = replace(judgement, vote=ascii(vote))
            yield self._consistent(self._rows[0], judgement)
            yield _unless(
                seconds <= MAX_SECONDS, f"judging {text[:20]!r}... must not take {MAX_SECONDS} s"
            )

    def _threads(self) -> Iterator[str]:
        cases = list(zip(self._rows, self._references, strict=True))
        expected = [self._task.judge(row, text) for row, text in cases]
        with ThreadPoolExecutor(4) as pool:
            judged = list(pool.map(lambda case: self._task.judge(*case), cases * 4))
        yield _unless(judged == expected * 4, "judgements differ between threads")


def hostile_completions() -> Iterator[str]:
    """Yield texts of at most `HOSTILE_LENGTH` characters that every scorer must handle."""
    yield from _PIECES
    for piece in _PIECES:
        yield (piece * HOSTILE_LENGTH)[:HOSTILE_LENGTH]
    generator = random.Random(0)
    for _ in range(20):
        yield "".join(generator.choices(_PIECES, k=1000))


def _outcomes(check: Callable[[], Iterator[str]]) -> Iterator[str]:
    """Yield the outcomes of a check; an error of the task is one of them and ends the check."""
    try:
        yield from check()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a failure of the task, to be listed
        name = check.__name__.strip("_").replace("_", " ")
        yield f"{name}: the task raises {_described(error)}"


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _unless(good: bool, failure: str) -> str:  # noqa: FBT001 - calls state the condition
    return "" if good else failure
