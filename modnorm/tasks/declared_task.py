"""Tasks that a text declares: prompt, columns, extraction, comparison."""

import hashlib
import json
import re
import string
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Literal

import re2
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import override

from modnorm.errors import InvalidInputError
from modnorm.files import read_fault, read_text
from modnorm.spec import MAX_DECLARATION, ExperimentSpec, compose_yaml, read_yaml
from modnorm.spec.reading import YamlError, line_of, parse_yaml
from modnorm.spec.section import Int, brief, field_fault, plain_faults
from modnorm.tasks import columns
from modnorm.tasks.catalogue import DATASETS
from modnorm.tasks.columns import AnswerTask, quoted
from modnorm.tasks.protocol import Message, Row
from modnorm.tasks.row_files import resolve_file

_SUFFIXES = (".yaml", ".yml")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MAX_DEPTH = 16
"""Nesting of mappings and lists; a declaration needs four levels."""


def compile_expression(pattern: str) -> "re2._Regexp":
    """Return a compiled expression; RE2 logs no errors."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)
        raise ValueError(
            f"is no regular expression of RE2, which has no look-around and no "
            f"back-references: {text}"
        ) from error


def _compiles(pattern: str) -> str:
    if compile_expression(pattern).groups > 1:
        raise ValueError("may have one group, which is the answer")
    return pattern


def _is_free(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{brief(name)} must be up to 64 of a-z, 0-9, - and _, the first a letter (capitals-2)"
        )
    if name in DATASETS:
        raise ValueError(f"{name} is a task of the paper; take another name")
    return name


def _is_template(text: str) -> str:
    _columns_of(text)
    return text


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Prompt(_Section):
    """Messages with {column} for the text of a row's column; {{ and }} are braces."""

    system: Annotated[str, AfterValidator(_is_template)] | None = None
    user: Annotated[str, Field(min_length=1), AfterValidator(_is_template)]


class Extraction(_Section):
    """Finds the answer in a completion."""

    regex: Annotated[str, Field(min_length=1), AfterValidator(_compiles)]
    """The answer is its group, or the whole match without a group."""
    match: Literal["first", "last"] = "last"


class Declaration(_Section):
    """The content of a task file."""

    name: Annotated[str, Field(strict=True), AfterValidator(_is_free)]
    max_tokens: Int = Field(ge=1, le=131_072)
    columns: tuple[str, ...] = Field(min_length=1)
    """Text columns of the rows; others are dropped."""
    prompt: Prompt
    answer: str
    extract: Extraction
    compare: Literal["exact", "caseless", "number", "mathematics"] = "exact"

    @model_validator(mode="after")
    def _columns_exist(self) -> "Declaration":
        named = {
            "prompt.system": _columns_of(self.prompt.system or ""),
            "prompt.user": _columns_of(self.prompt.user),
            "answer": {self.answer},
        }
        for field, names in named.items():
            for name in sorted(names - set(self.columns)):
                raise field_fault(
                    field, f"{brief(name)} is not one of the columns: {quoted(self.columns)}"
                )
        return self

    @property
    def question_columns(self) -> tuple[str, ...]:
        """The columns that the prompt names, in the order of `columns`."""
        named = _columns_of(self.prompt.system or "") | _columns_of(self.prompt.user)
        return tuple(column for column in self.columns if column in named)


def _columns_of(template: str) -> set[str]:
    names = set()
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{error}; write braces as {{{{ and }}}}") from error
    for _, name, form, conversion in parts:
        if form or conversion:
            raise ValueError(f"write the column {brief(name)} without ! or :")
        if name == "":
            raise ValueError("{} names no column; write braces as {{ and }}")
        if name is not None:
            names.add(name)
    return names


class _Texts(string.Formatter):
    """Formats a template by columns; names such as `question.text` are whole columns, too."""

    @override
    def get_field(
        self, field_name: str, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[object, str]:
        return kwargs[field_name], field_name


_TEXTS = _Texts()


def is_task_file(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)


def _read_declaration(name: str) -> str:
    """Return the text of a task file."""
    path = resolve_file(name, "task.name", None)
    try:
        text = read_text(path, most=MAX_DECLARATION)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {read_fault(error)}", field="task.name"
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def parse_declaration(text: str, *, source: str, field: str) -> Declaration:
    try:
        tree = _tree(text)
        return Declaration.model_validate(read_yaml(text))
    except ValidationError as error:
        faults = (
            f"line {line_of(tree, fault.place) or (tree.start_mark.line + 1 if tree else 1)}: "
            f"{'.'.join(map(str, fault.place)) or 'the file'}: {fault.text}"
            + (f" ({fault.hint})" if fault.hint else "")
            for fault in plain_faults(Declaration, error)
        )
        raise InvalidInputError(f"{source}, {'; '.join(faults)}", field=field) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"cannot read {source}: {error}", field=field) from error


def _tree(text: str) -> yaml.Node | None:
    """Return the YAML nodes of a text, which have line numbers.

    Services read untrusted texts. So size and depth are bounded and aliases are refused: PyYAML's
    time grows with the depth.
    """
    if len(text.encode("utf-8", "replace")) > MAX_DECLARATION:
        raise ValueError(f"a task file has at most {MAX_DECLARATION} bytes")
    depth = 0
    for event in parse_yaml(text):
        line = event.start_mark.line + 1 if event.start_mark else None
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            fault = f"the alias *{event.anchor} is not allowed: write its content again"
            raise YamlError(fault, line)
        if depth > _MAX_DEPTH:
            raise YamlError("nested deeper than any field", line)
    return compose_yaml(text)


SEARCHED = 65_536
"""Characters of a completion that are searched: the first, or with `match: last` the last."""
MAX_ANSWER = 1000
"""Longest extracted answer in characters; a longer one is dropped."""
_MATCHING = "re2-2"
"""Version of the matching, which is part of the scorer's digest."""
_COMPARING: Mapping[str, Mapping[str, str]] = {
    "number": {"comparing": "number-2"},
    "mathematics": {"comparing": "mathematics-3"},
}
"""Versions of comparisons, by name; a comparison's first version has no entry."""


def _number(answer: str) -> str | None:
    from modnorm.tasks.mathematics.numbers import stated_number  # noqa: PLC0415 - loads mpmath

    return stated_number(answer)


def _number_alone(answer: str) -> str | None:
    from modnorm.tasks.mathematics.numbers import number  # noqa: PLC0415 - loads mpmath

    return number(answer)


def _mathematics(answer: str) -> str | None:
    from modnorm.tasks.mathematics.canonical import canonical  # noqa: PLC0415 - loads mpmath

    return canonical(answer) if answer.strip() else None


COMPARISONS: Mapping[str, Callable[[str], str | None]] = {
    "exact": lambda answer: answer.strip() or None,
    "caseless": lambda answer: " ".join(answer.split()).casefold() or None,
    "number": _number,
    "mathematics": _mathematics,
}
"""Canonical forms of answers for comparison and votes, by the name of the comparison."""


class DeclaredTask(AnswerTask):
    """A task made from a declaration; reward 1 for the right answer, accuracy as the metric."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self._pattern = compile_expression(declaration.extract.regex)
        self._form = COMPARISONS[declaration.compare]
        content = {**declaration.model_dump(mode="json"), "matching": _MATCHING}
        content |= _COMPARING.get(declaration.compare, {})
        text = json.dumps(content, sort_keys=True)
        self._digest = hashlib.sha256(text.encode()).hexdigest()

    @property
    def name(self) -> str:
        return self._declaration.name

    @property
    def scorer(self) -> str:
        """The declaration's name and the start of its digest."""
        return f"{self.name}-{self._digest[:16]}"

    @property
    def max_tokens(self) -> int:
        """The declaration's completion cap."""
        return self._declaration.max_tokens

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Check the declared columns; drop the rest."""
        row = {column: _cell(raw, column) for column in self._declaration.columns}
        answer, form = self._declaration.answer, self._form
        if (_number_alone if form is _number else form)(row[answer]) is None:
            raise InvalidInputError(
                f"cannot be compared as {self._declaration.compare}", field=answer
            )
        # Other comparisons may find a shorter answer equal.
        if self._declaration.compare == "exact" and len(row[answer].strip()) > MAX_ANSWER:
            raise InvalidInputError(
                f"no answer of more than {MAX_ANSWER:,} characters is right",
                field=answer,
                remedy="leave the row out",
            )
        return row

    def parse_question(self, raw: Mapping[str, object]) -> Row:
        """Check the columns that the prompt names; drop the rest."""
        return {column: _cell(raw, column) for column in self._declaration.question_columns}

    def messages(self, row: Row) -> tuple[Message, ...]:
        prompt = self._declaration.prompt
        user = Message("user", _TEXTS.vformat(prompt.user, (), row))
        if prompt.system is None:
            return (user,)
        return Message("system", _TEXTS.vformat(prompt.system, (), row)), user

    def vote(self, row: Row, completion: str) -> str | None:  # noqa: ARG002 - as in the protocol
        answer = self._extract(completion)
        return None if answer is None else self._form(answer)

    def form(self, row: Row, answer: str) -> str | None:  # noqa: ARG002 - as in `AnswerTask`
        return self._form(answer)

    def gold(self, row: Row) -> str:
        return str(row[self._declaration.answer])

    def _extract(self, completion: str) -> str | None:
        first = self._declaration.extract.match == "first"
        text = completion[:SEARCHED] if first else completion[-SEARCHED:]
        # RE2 searches UTF-8, which cannot hold half a surrogate pair.
        text = text.encode("utf-8", "replace").decode()
        matches = filter(itemgetter(0), self._pattern.finditer(text))
        match = next(matches, None) if first else next(iter(deque(matches, maxlen=1)), None)
        answer = None if match is None else match[self._pattern.groups]
        return answer if answer and len(answer) <= MAX_ANSWER else None


def declared_task(text: str, *, source: str, field: str) -> DeclaredTask:
    return DeclaredTask(parse_declaration(text, source=source, field=field))


def load_task(path: Path) -> DeclaredTask:
    text = _read_declaration(str(path))
    return declared_task(text, source=str(path), field="task.name")


def carry_declaration(spec: ExperimentSpec) -> ExperimentSpec:
    """Return a spec that contains the text of its task file, if it names one."""
    name = spec.task.name
    if spec.task.declaration is not None or not is_task_file(name):
        return spec
    text = _read_declaration(name)
    declared = parse_declaration(text, source=name, field="task.name")
    task = spec.task.model_copy(update={"name": declared.name, "declaration": text})
    return spec.model_copy(update={"task": task})


def _cell(raw: Mapping[str, object], column: str) -> str:
    value = raw.get(column)
    # Files of text hold truth values in the spelling of JSON.
    return str(value).lower() if isinstance(value, bool) else columns.text(raw, column)
