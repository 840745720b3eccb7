"""What all sections of a spec have in common."""

from typing import Annotated, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import PydanticCustomError

FIELD_FAULT = "field_fault"


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
