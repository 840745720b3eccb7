"""Errors of a task's code name the task, the row and the source line."""

import math
import pickle
import re
from typing import Any

import pytest

from modnorm.engines.protocol import Completion, Finish, GenerationLimits
from modnorm.errors import IncompatibleError, InvalidInputError
from modnorm.search.scoring import PromptedRows
from modnorm.spec import DataSpec
from modnorm.tasks.gsm8k import Gsm8k
from modnorm.tasks.protocol import Judgement
from modnorm.tasks.row_loading import load_data
from modnorm.tasks.task_errors import metric, render_prompts
from tests.faults import error_at

COMPLETION, LIMITS = Completion(0, "#### 1", 1, Finish.STOP), GenerationLimits(8)


class Broken(Gsm8k):
    """A task whose code returns a given value, or raises a given exception."""

    name = "broken"

    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    def _end(self, *_: object) -> Any:
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    parse = messages = judge = metric = _end  # type: ignore[assignment]  # one for all


PLACE = re.escape(f"{__file__}:{Broken._end.__code__.co_firstlineno + 2}")


def judge(outcome: Any) -> None:
    PromptedRows(Broken(outcome), [{}], [()], LIMITS).answer_of(COMPLETION)


def test_a_judge_that_raises_is_fatal_also_from_another_process() -> None:
    with pytest.raises(IncompatibleError) as raised:
        judge(KeyError("x"))
    for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
        assert type(error) is IncompatibleError
        told = f"^task broken, row 0: KeyError: 'x', raised at {PLACE}$"
        assert re.search(told, error.message)
        assert error.field == "task.name"


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        Judgement(math.nan, "1", correct=True),
        pytest.param(Judgement(10**400, "1", correct=True), id="huge"),
        Judgement(2e30, "1", correct=True),
        Judgement(1.0, None, correct=True),
        Judgement(1.0, "\ud83d", correct=True),
        Judgement("1", "1", correct=True),  # type: ignore[arg-type]  # the fault
        Judgement(1.0, 1, correct=True),  # type: ignore[arg-type]  # the fault
        Judgement(1.0, None, correct=None),  # type: ignore[arg-type]  # the fault
    ],
)
def test_a_malformed_judgement_is_named(outcome: Any) -> None:
    with error_at("task.name", "task broken, row 0: judge", kind=IncompatibleError):
        judge(outcome)


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.5, "1", None])
def test_a_metric_that_is_no_fraction_is_named(value: Any) -> None:
    told = r"task broken: metric\(\) of 2 rows, 1 of them right, returned "
    for kind in (IncompatibleError, InvalidInputError):
        with pytest.raises(kind, match=told):
            metric(Broken(value), [{}, {}], [True, False], kind)


@pytest.mark.parametrize("prompt", ["hi", [{"role": "user", "content": "hi"}], (), None])
def test_a_prompt_without_messages_is_named(prompt: Any) -> None:
    with error_at("task.name", r"task broken, row 0: messages\(\) returned "):
        render_prompts(Broken(prompt), [{}], "row")


def test_prompts_and_rows_that_raise_are_bad_input(tmp_path: Any) -> None:
    task = Broken(KeyError("boo"))
    with error_at("task.name", f"task broken, row 0: KeyError: 'boo', raised at {PLACE}"):
        render_prompts(task, [{}], "row")
    path = tmp_path / "rows.jsonl"
    path.write_text("{}\n")
    with error_at("task.name", f"{path}, line 1: KeyError: 'boo', raised at {PLACE}"):
        load_data(task, DataSpec(source=str(path)), field="task.selection")


def test_a_task_that_exits_ends_no_worker_and_no_service() -> None:
    with pytest.raises(IncompatibleError, match="SystemExit: 2, raised at"):
        judge(SystemExit(2))
    with pytest.raises(InvalidInputError, match="SystemExit: 2, raised at"):
        render_prompts(Broken(SystemExit(2)), [{}], "row")
