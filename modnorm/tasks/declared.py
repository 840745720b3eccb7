r"""Tasks declared in a YAML file: prompt, columns, extraction, comparison.

    name: capitals
    max_tokens: 64
    columns: [country, capital]
    prompt:
      system: You know geography.
      user: "What is the capital of {country}? Answer in <answer> tags."
    answer: capital
    extract:
      regex: "<answer>(.*?)</answer>"
    compare: caseless

The scorer's name holds a digest of the declaration, so results of different declarations are
never taken for one another's.
"""

import hashlib
import json
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import regex
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from modnorm.errors import InvalidInputError
from modnorm.tasks import columns
from modnorm.tasks.answers import accuracy, judge_vote
from modnorm.tasks.files import confined
from modnorm.tasks.gsm8k import number_form
from modnorm.tasks.mathematics.canonical import canonical
from modnorm.tasks.protocol import Judgement, Message, Row

MATCH_SECONDS = 0.05
"""Time that a regular expression gets for one completion; then there is no answer."""
MAX_ANSWER = 1000

_SUFFIXES = (".yaml", ".yml")


def _exact(answer: str) -> str | None:
    return answer.strip() or None


def _caseless(answer: str) -> str | None:
    return " ".join(answer.split()).casefold() or None


COMPARISONS: Mapping[str, Callable[[str], str | None]] = MappingProxyType(
    {"exact": _exact, "caseless": _caseless, "number": number_form, "mathematics": canonical}
)
"""What an answer is brought to before it is compared and voted, by the name of the comparison."""


def _compiles(pattern: str) -> str:
    try:
        groups = regex.compile(pattern).groups
    except regex.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    if groups > 1:
        raise ValueError("may have one group, which is the answer")
    return pattern


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Prompt(_Section):
    """Messages with {column} in the places of a row's columns; {{ and }} are braces."""

    system: str | None = None
    user: str = Field(min_length=1)


class Extraction(_Section):
    """Where the answer stands in a completion."""

    regex: Annotated[str, AfterValidator(_compiles)]
    """Its group, or the whole match without one, is the answer."""
    match: Literal["first", "last"] = "last"


class Declaration(_Section):
    """The content of a task file."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    max_tokens: int = Field(ge=1, le=131_072)
    columns: tuple[str, ...] = Field(min_length=1)
    """Columns of the rows, all text; others are dropped."""
    prompt: Prompt
    answer: str
    """Column of the right answer."""
    extract: Extraction
    compare: Literal["exact", "caseless", "number", "mathematics"] = "exact"

    @model_validator(mode="after")
    def _columns_exist(self) -> "Declaration":
        used = {self.answer}
        for template in filter(None, (self.prompt.system, self.prompt.user)):
            used |= {
                name for _, name, _, _ in string.Formatter().parse(template) if name is not None
            }
        missing = sorted(used - set(self.columns))
        if missing:
            raise ValueError(f"columns: {', '.join(missing)} used but not listed")
        return self


class DeclaredTask:
    """A task made from a declaration; reward 1 for the right answer, accuracy as the metric."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._pattern = regex.compile(declaration.extract.regex)
        self._form = COMPARISONS[declaration.compare]
        text = json.dumps(declaration.model_dump(mode="json"), sort_keys=True)
        self._digest = hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """The declaration's name."""
        return self._declaration.name

    @property
    def scorer(self) -> str:
        """The declaration's name and the start of its digest."""
        return f"{self.name}-{self._digest[:12]}"

    @property
    def max_tokens(self) -> int:
        """The declaration's completion cap."""
        return self._declaration.max_tokens

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the declared columns; drop the rest.

        Raises:
            InvalidInputError: a column is missing, no text, or the answer cannot be compared.
        """
        row = {column: _cell(raw, column) for column in self._declaration.columns}
        answer = self._declaration.answer
        if self._form(row[answer]) is None:
            raise InvalidInputError(
                f"cannot be compared as {self._declaration.compare}", field=answer
            )
        return row

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return the declared prompt."""
        prompt = self._declaration.prompt
        user = Message("user", prompt.user.format(**row))
        return (
            (user,)
            if prompt.system is None
            else (
                Message("system", prompt.system.format(**row)),
                user,
            )
        )

    def judge(self, row: Row, completion: str) -> Judgement:
        """Score one completion: reward 1 for the row's answer, else 0."""
        answer = self._extract(completion)
        vote = None if answer is None else self._form(answer)
        return judge_vote(vote, self._form(str(row[self._declaration.answer])))

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Accuracy."""
        return accuracy(rows, correct)

    def _extract(self, completion: str) -> str | None:
        try:
            matches = [
                match[match.re.groups]
                for match in self._pattern.finditer(completion, timeout=MATCH_SECONDS)
            ]
        except TimeoutError:
            return None
        if not matches:
            return None
        answer = matches[0 if self._declaration.extract.match == "first" else -1]
        return answer if answer and len(answer) <= MAX_ANSWER else None


def is_task_file(name: str) -> bool:
    """Whether a task's name is that of a file."""
    return name.lower().endswith(_SUFFIXES)


def load_task(path: Path, *, roots: Sequence[Path] | None = None) -> DeclaredTask:
    """Return the task that a file declares.

    Args:
        path: A YAML file.
        roots: Folders that it must lie under; any file when None.

    Raises:
        InvalidInputError: there is no such file, or its content is no declaration.
    """
    found = confined(str(path), "task.name", roots)
    try:
        content = yaml.safe_load(found.read_text(encoding="utf-8"))
        return DeclaredTask(Declaration.model_validate(content))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInputError(f"cannot read {path}: {error}", field="task.name") from error
    except ValidationError as error:
        raise InvalidInputError(f"{path}: {_faults(error)}", field="task.name") from error


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'the file'}: {fault['msg']}" for fault in faults
    )


def _cell(raw: Mapping[str, object], column: str) -> str:
    value = raw.get(column)
    if type(value) in {int, float}:
        return str(value)
    return columns.text(raw, column)
