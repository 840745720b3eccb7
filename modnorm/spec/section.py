"""The base class of all sections of a spec, and its field types."""

import unicodedata
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

FIELD_FAULT = "field_fault"
STORED = "stored"
"""Validation context of specs that were accepted earlier."""
_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Unicode categories: control, format (zero width, direction), line and paragraph separators."""

SectionT = TypeVar("SectionT", bound="Section")


def field_fault(field: str, message: str) -> PydanticCustomError:
    """Return the error of one field, by its path, for a rule about several fields of a section."""
    return PydanticCustomError(FIELD_FAULT, "{message}", {"message": message, "field": field})


def added_rule(check: Callable[[SectionT], None]) -> object:
    """Return a rule about several fields that was added after the first version.

    Specs that were stored before the rule still have to be listed, shown and compared, so stored
    specs are read without it.

    Args:
        check: Method that raises a `field_fault`.
    """

    def apply(section: SectionT, info: ValidationInfo) -> SectionT:
        if info.context != STORED:
            check(section)
        return section

    return model_validator(mode="after")(apply)


def _refuse_bool(value: object) -> object:
    """Refuse booleans, which pydantic would accept as 0 or 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("truth_value", "must be a number, not true or false")
    return value


Int = Annotated[int, BeforeValidator(_refuse_bool)]
Float = Annotated[float, BeforeValidator(_refuse_bool)]


def named(value: object) -> object:
    """Expand a section that is only a name: `model: tiny-thicket`."""
    return {"name": value} if isinstance(value, str) else value


def _named_or_whole(value: object) -> object:
    if not isinstance(value, str | Mapping | Section):
        raise PydanticCustomError("no_section", "must be a name, or a mapping of fields to values")
    return named(value)


Named = BeforeValidator(_named_or_whole)
"""Validator of a section that may be only a name."""


def _refuse_invisible(value: str) -> str:
    """Refuse characters that are invisible or change the display of others."""
    for position, letter in enumerate(value, 1):
        if unicodedata.category(letter) in _INVISIBLE:
            raise PydanticCustomError(
                "unseen_character",
                "has the control or format character {code} at position {position}; remove it",
                {"code": f"U+{ord(letter):04X}", "position": position},
            )
    return value


Name = Annotated[str, AfterValidator(_refuse_invisible)]
"""A name, which must be readable in one line."""


class Section(BaseModel):
    """A section of a spec: immutable, without unknown fields."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        str_min_length=0,  # without a bound pydantic accepts halves of surrogate pairs
    )

    added_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields added after the first version.

    They are written only if they are not at their default, so that older specs keep their digests.
    """

    @model_serializer(mode="wrap")
    def _omit_added_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        content: dict[str, object] = handler(self)
        for name in self.added_fields:
            if getattr(self, name) == type(self).model_fields[name].default:
                content.pop(name, None)
        return content
