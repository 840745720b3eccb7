"""Questions: rows of a task that need not state the right answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from modnorm.errors import InvalidInputError
from modnorm.tasks.protocol import PromptTask, QuestionTask, Row, Task
from modnorm.tasks.row_files import Raw, read_file
from modnorm.tasks.row_loading import parse_in_place
from modnorm.tasks.task_errors import attribute_to_task

FIELD = "input"


def read_questions(task: Task, path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the questions of a file, each after its place: `questions.jsonl, line 17`.

    Args:
        task: The task. If it is no `QuestionTask`, the rows must state the right answers.
        path: A file in one of the formats of `modnorm.tasks.row_files`.

    Raises:
        InvalidInputError: the file cannot be read, or a row breaks the schema; the message names
            file, line and column.
    """
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}", field=FIELD)
    for place, raw in read_file(path, str(path), field=FIELD):
        where = f"{path}, {place}"
        yield where, parse_question(task, raw, where)


def parse_question(task: Task, raw: Raw, place: str) -> Row:
    """Return a raw row in the schema of the task's questions.

    Raises:
        InvalidInputError: the row breaks the schema; the message names the place and the column.
    """
    parse = task.parse_question if _takes_questions(task) else task.parse
    return parse_in_place(task, parse, raw, place, field=FIELD)


def vote_key(task: Task, row: Row, completion: str) -> str | None:
    """Return the vote key of a completion; None if its answer is not valid.

    Raises:
        InvalidInputError: the task's code raised; the message names the task.
    """
    with attribute_to_task(task, "a question", InvalidInputError):
        if _takes_questions(task):
            return task.vote(row, completion)
        return task.judge(row, completion).vote


def prompt_question(task: Task, prompt: str) -> Row:
    """Return the columns that votes on the completions of a prompt need.

    Raises:
        InvalidInputError: nothing can vote: the task needs whole rows, or the text is no prompt
            of a task whose votes depend on the question.
    """
    if not _takes_questions(task):
        raise InvalidInputError(
            f"votes of task {task.name} need a whole row", field="row", remedy="give the row"
        )
    return task.read_prompt(prompt) if _reads_prompts(task) else {}


def _reads_prompts(task: object) -> TypeGuard[PromptTask]:
    return hasattr(task, "read_prompt")


def _takes_questions(task: object) -> TypeGuard[QuestionTask]:
    return hasattr(task, "parse_question") and hasattr(task, "vote")
