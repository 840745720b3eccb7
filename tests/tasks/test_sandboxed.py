import pytest

from modnorm.errors import PreconditionError, UnavailableError
from modnorm.sandbox import Sandbox
from modnorm.tasks import check_sandbox
from tests.faults import error_at


def test_a_task_that_runs_programs_is_refused_without_a_sandbox():
    with error_at("task.name", "no sandbox", kind=PreconditionError) as caught:
        check_sandbox("mbpp", None)
    assert "sandbox service" in str(caught.value)


def test_a_task_that_runs_programs_is_refused_without_isolation():
    with Sandbox(mechanisms=()) as sandbox, pytest.raises(UnavailableError, match="isolate"):
        check_sandbox("mbpp", sandbox)


def test_the_isolation_is_measured():
    with Sandbox() as sandbox:
        isolation = check_sandbox("mbpp", sandbox)
    assert isolation is not None
    assert isolation.healthy
