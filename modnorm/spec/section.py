"""What all sections of a spec have in common."""

import unicodedata
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import PydanticCustomError

FIELD_FAULT = "field_fault"
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Unicode categories: control, format (zero width, direction), line and paragraph separators."""


def field_fault(field: str, message: str) -> PydanticCustomError:
    """Blame one field of a section for a rule that binds several."""
    return PydanticCustomError(FIELD_FAULT, "{message}", {"message": message, "field": field})


def _no_truth_value(value: object) -> object:
    """Refuse what pydantic would take for 0 or 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("truth_value", "must be a number, not true or false")
    return value


Int = Annotated[int, BeforeValidator(_no_truth_value)]
Float = Annotated[float, BeforeValidator(_no_truth_value)]


def named(value: object) -> object:
    """Let a section be given by its name alone: `model: tiny-thicket`."""
    return {"name": value} if isinstance(value, str) else value


def _named_or_whole(value: object) -> object:
    if not isinstance(value, str | Mapping | Section):
        raise PydanticCustomError("no_section", "must be a name, or a mapping of fields to values")
    return named(value)


Named = BeforeValidator(_named_or_whole)
"""Of a section that may be given by its name alone."""


def _seen(value: str) -> str:
    """Refuse characters that are not seen, or that change how others are."""
    for position, letter in enumerate(value, 1):
        if unicodedata.category(letter) in _UNSEEN:
            raise PydanticCustomError(
                "unseen_character",
                "has the control or format character {code} at position {position}; leave it out",
                {"code": f"U+{ord(letter):04X}", "position": position},
            )
    return value


Name = Annotated[str, AfterValidator(_seen)]
"""A text that is shown in a line: names of people's own, and those of things."""


class Section(BaseModel):
    """A part of a spec: no unknown fields, never changed."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        str_min_length=0,  # without any bound pydantic lets halves of surrogate pairs pass
    )

    later: ClassVar[frozenset[str]] = frozenset()
    """Fields that the section did not always have. They are written only where they are not at
    their default, so that specs from before keep their digests."""

    @model_serializer(mode="wrap")
    def _leave_out_later_defaults(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, object]:
        content: dict[str, object] = handler(self)
        for name in self.later:
            if getattr(self, name) == type(self).model_fields[name].default:
                content.pop(name, None)
        return content
