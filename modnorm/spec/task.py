"""The model, the task and its rows."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from modnorm.limits import MAX_COUNT
from modnorm.spec.section import Int, Name, Section

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
    """Rows passed over at the start."""
    limit: Int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Rows taken; all that are left when absent."""


def _sourced(value: object) -> object:
    if not isinstance(value, str | Mapping | Section):
        raise PydanticCustomError("no_rows", "must be a source, or a mapping of fields to values")
    return {"source": value} if isinstance(value, str) else value


Rows = Annotated[DataSpec, BeforeValidator(_sourced)]
"""Rows; a source alone stands for all of its rows."""


class TaskSpec(Section):
    """A benchmark, the rows that rank candidates and the rows that are voted on."""

    later: ClassVar[frozenset[str]] = frozenset({"declaration"})

    name: Name = Field(min_length=1)
    """Registered name, or name of the declared task. Where a user writes it, a task file."""
    declaration: str | None = Field(default=None, min_length=1, max_length=MAX_DECLARATION)
    """Text of the task file, put here by who reads it; none where the task is registered."""
    selection: Rows
    heldout: Rows
    max_tokens: Int | None = Field(default=None, ge=1, le=131_072)
    """Completion cap; the paper's for the task when absent."""
    scorer: str | None = Field(default=None, min_length=1)
    """Scorer by name; `reference` reproduces the published code, the default is right. `mbpp` has
    `self-reported`, which believes a program's report of tests that nothing else can judge."""
