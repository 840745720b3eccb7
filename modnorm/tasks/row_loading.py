"""Rows of a task with their places, and the prompts and fields they give."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeGuard

from modnorm.errors import InvalidInputError
from modnorm.hints import one_of
from modnorm.host import default_cache
from modnorm.spec import DataSpec
from modnorm.tasks.catalogue import find_split
from modnorm.tasks.columns import quoted
from modnorm.tasks.protocol import (
    Judgement,
    Message,
    PromptTask,
    QuestionTask,
    Row,
    Task,
    prompt_text,
    stated_gold,
)
from modnorm.tasks.row_files import (
    SUFFIXES,
    OpenedSource,
    Raw,
    RawRow,
    read_dataset,
    read_file,
    read_json_lines,
    resolve_file,
)
from modnorm.tasks.splits import files_of, open_split
from modnorm.tasks.task_errors import attribute_to_task

BUNDLED = Path(__file__).parents[1] / "bundled" / "data"
_BUNDLED_SCHEME = "bundled:"
_SPLIT_SCHEME = "split:"


def bundled_names() -> tuple[str, ...]:
    """Return the names of the data that ship with the project, in alphabetical order."""
    return tuple(sorted(path.stem for path in BUNDLED.glob("*.jsonl")))


def is_dataset(source: str) -> bool:
    """Whether a source is a Hugging Face dataset and no local data."""
    return not source.startswith((_BUNDLED_SCHEME, _SPLIT_SCHEME)) and not _names_file(source)


def needs_hub(source: str, folders: Sequence[Path], *, field: str) -> bool:
    """Whether rows come from the Hugging Face Hub, from a dataset or a public split."""
    if not source.startswith(_SPLIT_SCHEME):
        return is_dataset(source)
    data, split = find_split(source.removeprefix(_SPLIT_SCHEME), field=f"{field}.source")
    return data.hub is not None and not any(files_of(data, split, folder) for folder in folders)


def open_source(
    spec: DataSpec,
    *,
    field: str,
    roots: Sequence[Path] | None,
    folders: Sequence[Path] | None = None,
) -> OpenedSource:
    """Return the raw rows of a source; they are read during the iteration."""
    source = spec.source
    if source.startswith(_BUNDLED_SCHEME):
        _refuse_options(spec, field)
        return OpenedSource(read_file(_bundled_path(source, field), source, field=field))
    if source.startswith(_SPLIT_SCHEME):
        _refuse_options(spec, field)
        if folders is None:
            folders = (default_cache() / "data",) if roots is None else roots
        split = open_split(source.removeprefix(_SPLIT_SCHEME), folders=folders, field=field)
        return OpenedSource(iter(split.rows), split.revision)
    if _names_file(source):
        path = resolve_file(source, f"{field}.source", roots)
        _refuse_options(spec, field)
        return OpenedSource(read_file(path, source, field=field))
    return read_dataset(spec, field=field)


def _names_file(source: str) -> bool:
    return source.startswith((".", "/", "~")) or Path(source).suffix.lower() in SUFFIXES


def _bundled_path(source: str, field: str) -> Path:
    name = source.removeprefix(_BUNDLED_SCHEME)
    if name not in bundled_names():
        raise InvalidInputError(
            f"there are no bundled data named {name!r}",
            field=f"{field}.source",
            remedy=one_of(name, bundled_names()),
        )
    return BUNDLED / f"{name}.jsonl"


def _refuse_options(spec: DataSpec, field: str) -> None:
    for option in ("config", "split", "revision"):
        if getattr(spec, option) is not None:
            raise InvalidInputError(
                f"{spec.source} is not a Hugging Face dataset and has no {option}",
                field=f"{field}.{option}",
                remedy=f"remove {option}",
            )


@dataclass(frozen=True, slots=True)
class ReadableRow:
    prompt: str | None
    """None where its task is not installed here."""
    gold: str | None
    """None where its task states none, too."""


def readable_rows(task: Task | None, rows: Iterable[str]) -> tuple[ReadableRow, ...]:
    """Return stored rows as people read them, in order."""
    if task is None:
        return tuple(ReadableRow(None, None) for _ in rows)
    parsed: Iterator[Row] = map(json.loads, rows)
    return tuple(
        ReadableRow(prompt_text(task.messages(row)), stated_gold(task, row)) for row in parsed
    )


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """The rows that a spec names."""

    rows: tuple[Row, ...]
    revision: str | None
    """Commit of the rows' Hugging Face dataset; None for other sources."""
    places: tuple[str, ...]
    """Place of each row in its source, for error messages: `line 17`."""


def load_data(
    task: Task,
    spec: DataSpec,
    *,
    field: str,
    roots: Sequence[Path] | None = None,
    folders: Sequence[Path] | None = None,
) -> LoadedRows:
    """Load and check the rows that a spec names, in file order."""
    opened = open_source(spec, field=field, roots=roots, folders=folders)
    stop = None if spec.limit is None else spec.offset + spec.limit
    places, rows = [], []
    for place, raw in islice(opened.rows, spec.offset, stop):
        places.append(place)
        rows.append(parse_row(task, raw, f"{spec.source}, {place}", field=field))
    passed = f" after the first {spec.offset}" if spec.offset else ""
    if not rows:
        raise InvalidInputError(f"{spec.source} has no rows{passed}", field=field)
    if spec.limit is not None and len(rows) < spec.limit:
        raise InvalidInputError(
            f"{spec.source} has {len(rows)} rows{passed}, below the limit",
            field=f"{field}.limit",
            remedy=f"at most {len(rows)}",
        )
    return LoadedRows(tuple(rows), opened.revision, tuple(places))


def parse_row(
    task: Task, columns: Raw, place: str, *, field: str, parse: Callable[[Raw], Row] | None = None
) -> Row:
    """Return a raw row in its task's schema, by default as `task.parse` returns it."""
    with attribute_to_task(task, place, InvalidInputError):
        try:
            return (parse or task.parse)(columns)
        except InvalidInputError as error:
            raise _placed(error, columns, place, field) from error


def _placed(error: InvalidInputError, columns: Raw, place: str, field: str) -> InvalidInputError:
    """Return the error of a row with its place; a column that the row lacks is missing."""
    column = error.field
    if column is None or column in columns:
        message = f"{place}, column {column!r}: {error.message}"
        return InvalidInputError(message, field=field, remedy=error.remedy)
    there = f"the row has only {quoted(columns)}" if columns else "the row has no columns"
    return InvalidInputError(
        f"{place}, column {column!r}: is missing; {error.message}",
        field=field,
        remedy=error.remedy or there,
    )


FIELD = "input"


def read_raw_questions(path: Path) -> Iterator[RawRow]:
    """Yield the raw rows of a file, each after its place: `questions.jsonl, line 17`."""
    is_stdin = str(path) == "-"
    name = "standard input" if is_stdin else str(path)
    if is_stdin or path.is_fifo():
        rows = read_json_lines(Path("/dev/stdin") if is_stdin else path, name, field=FIELD)
    elif path.is_file():
        rows = read_file(path, name, field=FIELD, named_by=FIELD)
    else:
        special = "is a directory" if path.is_dir() else "is no file"
        found = special if path.exists() else "does not exist"
        raise InvalidInputError(
            f"{path} {found}", field=FIELD, remedy="name a file, or - for standard input"
        )
    for place, raw in rows:
        yield f"{name}, {place}", raw


def read_questions(task: Task, path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the questions of a file, each after its place: `questions.jsonl, line 17`."""
    for place, raw in read_raw_questions(path):
        yield place, parse_question(task, raw, place)


def parse_question(task: Task, raw: Raw, place: str) -> Row:
    """Return a raw row in the schema of the task's questions."""
    if not isinstance(raw, Mapping):
        raise InvalidInputError(f"{place}: {type(raw).__name__} is no row", field=FIELD)
    parse = task.parse_question if _takes_questions(task) else task.parse
    return parse_row(task, raw, place, field=FIELD, parse=parse)


def vote_key(task: Task, row: Row, completion: str) -> str | None:
    """Return the vote key of a completion; None if its answer is not valid."""
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
        return self._task.metric(rows, correct)


def _vote(task: Task, row: Row, completion: str) -> str | None:
    if _takes_questions(task):
        return task.vote(row, completion)
    return task.judge(row, completion).vote


def prompt_question(task: Task, prompt: str) -> Row:
    """Return the columns that votes on the completions of a prompt need."""
    if not _takes_questions(task):
        raise InvalidInputError(f"votes of task {task.name} need a whole row", field="row")
    return task.read_prompt(prompt) if _reads_prompts(task) else {}


def _reads_prompts(task: object) -> TypeGuard[PromptTask]:
    return hasattr(task, "read_prompt")


def _takes_questions(task: object) -> TypeGuard[QuestionTask]:
    return hasattr(task, "parse_question") and hasattr(task, "vote")
