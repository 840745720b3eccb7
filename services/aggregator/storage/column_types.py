"""Types of columns: text, and members of enumerations as text."""

from enum import StrEnum
from typing import ClassVar

from sqlalchemy import Dialect
from sqlalchemy import Text as SqlText
from sqlalchemy.types import TypeDecorator

NO_AUTOINCREMENT = {"autoincrement": False}
"""Option of a column of numbers in a primary key, which the application sets."""


class Text(TypeDecorator[str]):
    """Text of any length. NUL, which Postgres cannot store, becomes the replacement character."""

    impl = SqlText
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        """Return the text without NUL characters."""
        return value if value is None else value.replace("\0", "\ufffd")


class EnumText(TypeDecorator[StrEnum]):
    """A member of an enumeration, stored as text."""

    impl = SqlText
    cache_ok = True
    kind: ClassVar[type[StrEnum]]

    def process_bind_param(self, value: StrEnum | None, _dialect: Dialect) -> str | None:
        """Return the plain text."""
        return value if value is None else str(value)

    def process_result_value(self, value: str | None, _dialect: Dialect) -> StrEnum | None:
        """Return the member."""
        return value if value is None else self.kind(value)


def enum_text(kind: type[StrEnum]) -> type[EnumText]:
    """Return the type of a column that holds members of an enumeration."""
    return type(f"{kind.__name__}Text", (EnumText,), {"kind": kind, "cache_ok": True})
