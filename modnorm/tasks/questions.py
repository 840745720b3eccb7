"""Questions: rows of a task that need not state the right answer."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

from modnorm.errors import InvalidInputError
from modnorm.tasks.protocol import Judgement, Message, PromptTask, QuestionTask, Row, Task
from modnorm.tasks.row_files import Raw, RawRow, read_file, read_json_lines
from modnorm.tasks.row_loading import parse_in_place
from modnorm.tasks.task_errors import attribute_to_task

FIELD = "input"


def read_raw_questions(path: Path) -> Iterator[RawRow]:
    """Yield the raw rows of a file, each after its place: `questions.jsonl, line 17`.

    Standard input (`-`) and pipes hold JSON lines. They can be read once.

    Raises:
        InvalidInputError: the file cannot be read, or its name does not tell the format.
    """
    is_stdin = str(path) == "-"
    name = "standard input" if is_stdin else str(path)
    if is_stdin or path.is_fifo():
        rows = read_json_lines(Path("/dev/stdin") if is_stdin else path, name, field=FIELD)
    elif path.is_file():
        rows = read_file(path, name, field=FIELD, named_by=FIELD)
    else:
        found = "is a directory" if path.is_dir() else "does not exist"
        raise InvalidInputError(
            f"{path} {found}", field=FIELD, remedy="name a file, or - for standard input"
        )
    for place, raw in rows:
        yield f"{name}, {place}", raw


def read_questions(task: Task, path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the questions of a file, each after its place: `questions.jsonl, line 17`.

    Args:
        task: The task. If it is no `QuestionTask`, the rows must state the right answers.
        path: A file in one of the formats of `modnorm.tasks.row_files`, a pipe, or `-`.

    Raises:
        InvalidInputError: the file cannot be read, or a row breaks the schema; the message names
            file, line and column.
    """
    for place, raw in read_raw_questions(path):
        yield place, parse_question(task, raw, place)


def parse_question(task: Task, raw: Raw, place: str) -> Row:
    """Return a raw row in the schema of the task's questions.

    Raises:
        InvalidInputError: the row breaks the schema; the message names the place and the column.
    """
    if not isinstance(raw, Mapping):
        raise InvalidInputError(
            f"{place}: {type(raw).__name__} is no row",
            field=FIELD,
            remedy="give each question as a mapping from the task's columns to values",
        )
    parse = task.parse_question if _takes_questions(task) else task.parse
    return parse_in_place(task, parse, raw, place, field=FIELD)


def vote_key(task: Task, row: Row, completion: str) -> str | None:
    """Return the vote key of a completion; None if its answer is not valid.

    Raises:
        InvalidInputError: the task's code raised; the message names the task.
    """
    with attribute_to_task(task, "a question", InvalidInputError):
        return _vote(task, row, completion)


class UnmarkedTask:
    """A task whose rows are questions: judgements have a vote, no reward and no right answer."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.name, self.scorer, self.max_tokens = task.name, task.scorer, task.max_tokens

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check one raw question and return it in the task's schema."""
        return parse_question(self._task, raw, "the question")

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return the prompt of a question."""
        return self._task.messages(row)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Return a judgement with the vote key of a completion."""
        return Judgement(0.0, _vote(self._task, row, completion), correct=False)

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Return the task's metric."""
        return self._task.metric(rows, correct)


def _vote(task: Task, row: Row, completion: str) -> str | None:
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
