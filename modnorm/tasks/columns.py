"""Checks of the columns of raw rows, shared by the tasks."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from modnorm.errors import InvalidInputError

_FLAGS: Mapping[str, bool] = MappingProxyType(
    {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}
)
_SHOWN = 200
"""Longest list of column names in errors, in characters."""


def quoted(columns: Iterable[str]) -> str:
    """Return column names for an error, cut if they are many."""
    names = ", ".join(map(repr, columns))
    return names if len(names) <= _SHOWN else f"{names[:_SHOWN]}..."


def text(raw: Mapping[str, object], column: str) -> str:
    """Return a text column that a tokenizer can encode.

    Raises:
        InvalidInputError: the column is missing, blank or no text, or holds half a surrogate pair.
    """
    value = raw.get(column)
    if not isinstance(value, str):
        raise InvalidInputError("must be text", field=column)
    if not value.strip():
        raise InvalidInputError("is empty; it must hold text", field=column)
    return _encodable(value, column)


def optional_text(raw: Mapping[str, object], column: str) -> str:
    """Return a text column; "" if it is missing or blank."""
    value = raw.get(column)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidInputError("must be text", field=column)
    return _encodable(value, column)


def listed(raw: Mapping[str, object], column: str) -> object:
    """Return a column; the text of a JSON list, as in CSV files, is returned as the list."""
    value = raw.get(column)
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def texts(raw: Mapping[str, object], column: str) -> list[str]:
    """Return a column that holds a list of at least one text; see `listed`.

    Raises:
        InvalidInputError: the column is no list of texts, or it is empty.
    """
    value = listed(raw, column)
    if not isinstance(value, list) or not value:
        raise InvalidInputError("must be a list of texts", field=column)
    return [text({column: item}, column) for item in value]


def flag(raw: Mapping[str, object], column: str) -> bool:
    """Return a truth value; texts of CSV files, such as `True` or `0`, are read as one.

    It is False if the column is missing or blank.

    Raises:
        InvalidInputError: the column is neither.
    """
    value = raw.get(column, False)
    if isinstance(value, str):
        value = _FLAGS.get(value.strip().lower())
    if not isinstance(value, bool):
        raise InvalidInputError("must be true or false", field=column)
    return value


def _encodable(value: str, column: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidInputError("holds half a surrogate pair", field=column)
    return value
