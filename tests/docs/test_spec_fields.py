"""The page of a spec's fields has the fields and defaults of the models."""

import re
from pathlib import Path
from typing import get_args

import yaml

from modnorm.spec import DataSpec, ExperimentSpec, RadiusSource
from modnorm.spec.section import Section

PAGE = Path(__file__).parents[2] / "docs/spec.md"
ROWS = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
"""Path and default of each row of the tables."""
VALUES = {DataSpec, RadiusSource}
"""Sections that count as values here: the page has their fields in one place."""


def fields(section, prefix=""):
    """Yield path and field of every value in a section."""
    for name, field in section.model_fields.items():
        kinds = {field.annotation, *get_args(field.annotation)} - VALUES
        inner = [each for each in kinds if isinstance(each, type) and issubclass(each, Section)]
        if not inner:
            yield prefix + name, field
        for each in inner:
            yield from fields(each, f"{prefix}{name}.")


FIELDS = {
    **dict(fields(ExperimentSpec)),
    **dict(fields(DataSpec, "ROWS.")),
    "method.radius.artifact": RadiusSource.model_fields["artifact"],
    "method.radius.transfer": RadiusSource.model_fields["transfer"],
}
REQUIRED = {path for path, field in FIELDS.items() if field.is_required()} | {"method.radius"}
"""The radius has the default 0, which stands for a missing one."""


def test_each_field_has_exactly_one_row():
    assert sorted(path for path, _ in ROWS) == sorted(FIELDS)


def test_required_fields_are_marked():
    assert {path for path, cell in ROWS if cell in {"required", "by method"}} == REQUIRED


def test_defaults_in_code_are_those_of_the_models():
    written = {path: yaml.safe_load(cell.strip("`")) for path, cell in ROWS if cell[0] == "`"}
    defaults = {path: FIELDS[path].default for path in FIELDS.keys() - REQUIRED}
    values = {
        path: list(value) if isinstance(value, tuple) else value
        for path, value in defaults.items()
        if value is not None
    }
    assert written == values
