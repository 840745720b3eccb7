r"""Reads and checks the text that declares a task.

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

A declaration is data: nothing in it is executed. Regular expressions are RE2's, whose time is
linear in the searched text. So every completion can be judged, with the same result everywhere.
"""

import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import re2
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from modnorm.errors import InvalidInputError
from modnorm.files import read_fault
from modnorm.spec import MAX_DECLARATION, compose_yaml, read_yaml
from modnorm.spec.reading import line_of
from modnorm.spec.section import brief, field_fault, plain_faults
from modnorm.tasks.catalogue import DATASETS
from modnorm.tasks.columns import quoted

_SUFFIXES = (".yaml", ".yml")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MAX_DEPTH = 16
"""Nesting of mappings and lists; a declaration needs four levels."""


def compile_expression(pattern: str) -> "re2._Regexp":
    """Return a compiled expression; RE2 logs no errors.

    Raises:
        ValueError: the pattern is no expression of RE2.
    """
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

    regex: Annotated[str, AfterValidator(_compiles)]
    """The answer is its group, or the whole match without a group."""
    match: Literal["first", "last"] = "last"


class Declaration(_Section):
    """The content of a task file."""

    name: Annotated[str, Field(strict=True), AfterValidator(_is_free)]
    max_tokens: int = Field(ge=1, le=131_072)
    columns: tuple[str, ...] = Field(min_length=1)
    """Text columns of the rows; others are dropped."""
    prompt: Prompt
    answer: str
    """Column with the right answer."""
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
    """Return the columns in a template.

    Raises:
        ValueError: it is no template.
    """
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


def is_task_file(name: str) -> bool:
    """Whether a task's name is a file name."""
    return name.lower().endswith(_SUFFIXES)


def read_declaration(path: Path) -> str:
    """Return the text of a task file.

    Raises:
        InvalidInputError: the file cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_DECLARATION + 1)
        if len(content) > MAX_DECLARATION:
            raise _too_large(path)
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {read_fault(error)}", field="task.name"
        ) from error


def _too_large(path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"{path} has more than {MAX_DECLARATION} bytes, the limit of task files",
        field="task.name",
    )


def parse_declaration(text: str, *, source: str, field: str) -> Declaration:
    """Return the declaration in a text.

    Raises:
        InvalidInputError: the text is no declaration; the message names line and field of each
            fault.
    """
    try:
        tree = _tree(text)
        return Declaration.model_validate(read_yaml(text))
    except ValidationError as error:
        raise InvalidInputError(f"{source}, {_faults(error, tree)}", field=field) from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidInputError(f"cannot read {source}: {error}", field=field) from error


def _tree(text: str) -> yaml.Node | None:
    """Return the YAML nodes of a text, which have line numbers.

    Services read untrusted texts. So size and depth are bounded and aliases are refused: PyYAML's
    time grows with the depth.

    Raises:
        ValueError: the text is too large, or a key occurs twice.
        yaml.YAMLError: the text is no YAML, has an alias or is nested too deep.
    """
    if len(text.encode("utf-8", "replace")) > MAX_DECLARATION:
        raise ValueError(f"a task file has at most {MAX_DECLARATION} bytes")
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if fault := _fault(event, depth):
            raise yaml.YAMLError(f"{fault}\n{event.start_mark}")
    return compose_yaml(text)


def _fault(event: yaml.Event, depth: int) -> str | None:
    if isinstance(event, yaml.AliasEvent):
        return f"the alias *{event.anchor} is not allowed: write its content again"
    return "nested deeper than any field" if depth > _MAX_DEPTH else None


def _faults(error: ValidationError, tree: yaml.Node | None) -> str:
    return "; ".join(
        f"line {_line(tree, fault.place)}: {'.'.join(map(str, fault.place)) or 'the file'}: "
        + (f"{fault.text} ({fault.hint})" if fault.hint else fault.text)
        for fault in plain_faults(Declaration, error)
    )


def _line(tree: yaml.Node | None, place: Sequence[int | str]) -> int:
    """Return the line of a field, counted from 1; that of the first node if it has none."""
    return line_of(tree, place) or (1 if tree is None else tree.start_mark.line + 1)
