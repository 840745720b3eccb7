"""Errors of a task's code name the task, the row and the source line."""

import math
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from modnorm.engines.protocol import Completion, Finish
from modnorm.errors import IncompatibleError, InvalidInputError
from modnorm.search.scoring import _judge
from modnorm.spec import DataSpec
from modnorm.tasks.gsm8k import Gsm8k
from modnorm.tasks.protocol import Judgement, Message, Row
from modnorm.tasks.row_loading import load_rows
from modnorm.tasks.task_errors import metric, render_prompts
from tests.faults import error_at

COMPLETION = Completion(0, "#### 1", tokens=1, finish=Finish.STOP)


class Broken(Gsm8k):
    """A task whose code raises a given exception."""

    name = "broken"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def parse(self, raw: Mapping[str, object]) -> Row:
        raise self._error

    def messages(self, row: Row) -> tuple[Message, ...]:
        raise self._error

    def judge(self, row: Row, completion: str) -> Judgement:
        raise self._error


def place(method: str) -> str:
    """Return file and line where a method of the task raises, as a pattern."""
    line = getattr(Broken, method).__code__.co_firstlineno + 1
    return re.escape(f"{__file__}:{line}")


def test_a_judge_that_raises_is_fatal_also_from_another_process() -> None:
    told = f"^task broken, selection row 3: KeyError: 'x', raised at {place('judge')}$"
    with pytest.raises(IncompatibleError) as raised:
        _judge(Broken(KeyError("x")), {}, COMPLETION, "selection row 3")
    travelled = pickle.loads(pickle.dumps(raised.value))
    for error in (raised.value, travelled):
        assert type(error) is IncompatibleError
        assert re.search(told, error.message)
        assert (error.field, error.remedy) == ("task.name", "fix the task, or remove the row")


def test_a_judge_that_returns_no_judgement_is_named() -> None:
    class Silent(Gsm8k):
        name = "silent"

        def judge(self, row: Row, completion: str) -> Judgement:
            return None  # type: ignore[return-value]  # the fault

    with pytest.raises(IncompatibleError, match=r"task silent, row 0: judge\(\) returned None"):
        _judge(Silent(), {}, COMPLETION, "row 0")


@pytest.mark.parametrize(
    ("reward", "vote", "correct"),
    [
        (math.nan, "1", True),
        pytest.param(10**400, "1", True, id="huge"),
        ("1", "1", True),
        (1.0, 1, True),
        (1.0, None, None),
    ],
)
def test_a_malformed_judgement_is_named(reward: Any, vote: Any, correct: Any) -> None:
    class Malformed(Gsm8k):
        name = "malformed"

        def judge(self, row: Row, completion: str) -> Judgement:
            return Judgement(reward, vote, correct)

    with error_at("task.name", "task malformed, row 0: judge", kind=IncompatibleError) as raised:
        _judge(Malformed(), {}, COMPLETION, "row 0")
    assert str(raised.value.remedy).startswith("return a Judgement")


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.5, "1", None])
def test_a_metric_that_is_no_fraction_is_named(value: Any) -> None:
    class Malformed(Gsm8k):
        name = "malformed"

        def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
            return value  # type: ignore[no-any-return]  # the fault

    told = r"task malformed: metric\(\) of 2 rows, 1 of them right, returned "
    for kind in (IncompatibleError, InvalidInputError):
        with pytest.raises(kind, match=told):
            metric(Malformed(), [{}, {}], [True, False], kind)


@pytest.mark.parametrize("prompt", ["hi", [{"role": "user", "content": "hi"}], (), None])
def test_a_prompt_without_messages_is_named(prompt: Any) -> None:
    class Malformed(Gsm8k):
        name = "malformed"

        def messages(self, row: Row) -> tuple[Message, ...]:
            return prompt  # type: ignore[no-any-return]  # the fault

    told = r"task malformed, heldout row 0: messages\(\) returned "
    with pytest.raises(InvalidInputError, match=told):
        render_prompts(Malformed(), [{}], "heldout row")


def test_prompts_and_rows_that_raise_are_bad_input(tmp_path: Path) -> None:
    told = f"^task broken, selection row 0: KeyError: 'boo', raised at {place('messages')}$"
    with pytest.raises(InvalidInputError) as raised:
        render_prompts(Broken(KeyError("boo")), [{}], "selection row")
    assert re.search(told, raised.value.message)
    assert raised.value.field == "task.name"
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n")
    told = f"^task broken, {re.escape(str(path))}, line 1: KeyError: 'boo', raised at "
    rows = DataSpec(source=str(path))
    with pytest.raises(InvalidInputError) as raised:
        load_rows(Broken(KeyError("boo")), rows, field="task.selection")
    assert re.search(told + place("parse"), raised.value.message)
    assert raised.value.field == "task.name"


def test_a_task_that_exits_ends_no_worker_and_no_service() -> None:
    with pytest.raises(IncompatibleError, match="task broken, row 0: SystemExit: 2, raised at"):
        _judge(Broken(SystemExit(2)), {}, COMPLETION, "row 0")
    with pytest.raises(InvalidInputError, match="task broken, row 0: SystemExit: 2, raised at"):
        render_prompts(Broken(SystemExit(2)), [{}], "row")
