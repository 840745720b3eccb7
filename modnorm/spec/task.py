"""The model, the task and its rows."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from modnorm.spec.section import Int, Name, Section
from modnorm.spec_limits import MAX_COUNT

MAX_DECLARATION = 65_536
"""Largest text of a declared task, in bytes of UTF-8."""


class ModelSpec(Section):
    """A pretrained causal language model and its revision."""

    name: Name = Field(min_length=1)
    """Bundled name (`tiny-thicket`), local directory, or Hugging Face repository."""
    revision: str | None = None
    """Commit of a Hugging Face repository; a local directory has none."""


class DataSpec(Section):
    """Rows of a task, in file order."""

    source: str = Field(min_length=1)
    """`bundled:NAME`, `split:TASK/NAME`, a file or folder, or a Hugging Face dataset id."""
    config: str | None = None
    """Configuration of a Hugging Face dataset."""
    split: str | None = None
    """Split of a Hugging Face dataset, or a file of a folder without its suffix."""
    revision: str | None = None
    """Commit of a Hugging Face dataset."""
    offset: Int = Field(default=0, ge=0, le=MAX_COUNT)
    """Rows skipped at the start."""
    limit: Int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Rows used; by default all remaining rows."""


def _expand_source(value: object) -> object:
    if not isinstance(value, str | Mapping | Section):
        raise PydanticCustomError("no_rows", "must be a source, or a mapping of fields to values")
    return {"source": value} if isinstance(value, str) else value


Rows = Annotated[DataSpec, BeforeValidator(_expand_source)]
"""Rows; a string is a source with all its rows."""


class TaskSpec(Section):
    """A benchmark, the rows that rank candidates and the rows that are voted on."""

    added_fields: ClassVar[frozenset[str]] = frozenset({"declaration"})

    name: Name = Field(min_length=1)
    """Registered name, or name of the declared task; in a user's spec also a task file."""
    declaration: str | None = Field(default=None, min_length=1, max_length=MAX_DECLARATION)
    """Text of the task file, filled in by the client; None for a registered task."""
    selection: Rows
    heldout: Rows
    max_tokens: Int | None = Field(default=None, ge=1, le=131_072)
    """Completion cap in tokens; by default the paper's for the task."""
    scorer: str | None = Field(default=None, min_length=1)
    """Name of the scorer; `reference` reproduces the published code, the default is correct.

    For `mbpp`, `self-reported` trusts a program's report of tests that nothing else can judge.
    """
