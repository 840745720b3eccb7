"""Sections of a spec, and the messages of faults in them."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, ClassVar, NamedTuple, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from modnorm.errors import InvalidInputError
from modnorm.hints import did_you_mean, nearest

_INVISIBLE = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Unicode categories: control, format (zero width, direction), line and paragraph separators."""


def field_fault(field: str, message: str) -> PydanticCustomError:
    """Return the error of one field, by its path, for a rule about several fields of a section."""
    return PydanticCustomError("field_fault", "{message}", {"message": message, "field": field})


def _refuse_bool(value: object) -> object:
    """Refuse booleans, which pydantic would accept as 0 or 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("truth_value", "must be a number, not true or false")
    return value


Int = Annotated[int, BeforeValidator(_refuse_bool)]
Float = Annotated[float, BeforeValidator(_refuse_bool)]


def short_form(field: str) -> BeforeValidator:
    """Return the validator of a section that may be the text of one field: `model: NAME`."""

    def expand(value: object) -> object:
        if not isinstance(value, str | Mapping | Section):
            raise PydanticCustomError(
                "no_section", f"must be a {field}, or a mapping of fields to values"
            )
        return {field: value} if isinstance(value, str) else value

    return BeforeValidator(expand)


Named = short_form("name")


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


_LISTED = 10
"""Faults of a content that an error lists."""
_LONGEST = 40
"""Characters of a wrong value that a message repeats."""
_QUOTED = re.compile("'([^']*)'")
_SECTION = "must be a mapping of fields to values"
_WORDS: Mapping[str, str] = {
    "missing": "must be given",
    "string_unicode": "holds half a surrogate pair; write the character itself",
    "model_attributes_type": _SECTION,
    "model_type": _SECTION,
    "dict_type": _SECTION,
    "mapping_type": _SECTION,
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "union_tag_not_found": "must be given",
    "finite_number": "must be finite",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length:,} characters",
    "too_short": "must have at least {min_length}",
    "too_long": "must have at most {max_length:,}",
    "greater_than": "must be greater than {gt:,}",
    "greater_than_equal": "must be at least {ge:,}",
    "less_than": "must be less than {lt:,}",
    "less_than_equal": "must be at most {le:,}",
    "union_tag_invalid": "there is no {tag!r} here, only {expected_tags}",
}
"""Descriptions of faults by pydantic's type; braces hold values of pydantic."""
_WANTED: Mapping[str, str] = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "string_type": "must be a text",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
}
"""Messages for faults of a value, which the message repeats."""


class Fault(NamedTuple):
    place: tuple[int | str, ...]
    """Path of the field, as the file has it."""
    text: str
    """The fault, and a right value."""
    hint: str | None = None
    """The valid name nearest to a misspelt one, as a question."""


def first_fault(
    kind: type[BaseModel], error: ValidationError, start: Sequence[str] = (), *, whole: str
) -> InvalidInputError:
    """Return the error for invalid content; it names the first field and lists all faults."""
    misspelt = _misspelt(kind, error)
    kept = (fault for fault in plain_faults(kind, error) if fault.place not in misspelt)
    faults = list(islice(kept, _LISTED))
    first, *others = [(".".join(map(_step, (*start, *each.place))), each) for each in faults]
    also = "; ".join(f"{field}: {fault.text}" for field, fault in others)
    if (left := error.error_count() - len(misspelt) - _LISTED) > 0:
        also += f"; and {left:,} more"
    field, fault = first
    message = f"{fault.text}; also {also}" if also else fault.text
    return InvalidInputError(message, field=field or whole, remedy=fault.hint)


def plain_faults(kind: type[BaseModel], error: ValidationError) -> Iterator[Fault]:
    """Yield the faults of a content in plain words."""
    for fault in error.errors(include_url=False):
        yield Fault(tuple(_place(kind, fault)), *_words(kind, fault))


def _misspelt(kind: type[BaseModel], error: ValidationError) -> set[tuple[int | str, ...]]:
    """Return the paths of missing fields that are there under a misspelt name."""
    faults = error.errors(include_url=False)
    missing = {tuple(fault["loc"]) for fault in faults if fault["type"] == "missing"}
    unknown = [fault["loc"] for fault in faults if fault["type"] == "extra_forbidden"]
    meant = {(*at[:-1], nearest(str(at[-1]), _fields_at(kind, at[:-1])) or "") for at in unknown}
    return missing & meant


def located_fault(error: ValidationError) -> str:
    """Return the first fault of a content in plain words, after its place: `masses.norm: ...`."""
    fault = error.errors(include_url=False)[0]
    tag = fault.get("ctx", {}).get("discriminator", "").strip("'")
    steps = [*fault["loc"], tag] if tag else fault["loc"]
    place = ".".join(map(str, steps))
    return f"{place}: {plain_words(fault)}" if place else plain_words(fault)


def plain_words(fault: ErrorDetails) -> str:
    """Describe in plain words the fault of a value, and a right value."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind in _WANTED:
        return f"{_WANTED[kind]}, not {brief(fault['input'])}"
    if kind == "literal_error":
        names = ", ".join(_names(context["expected"]))
        return f"there is no {brief(fault['input'])} here, only {names}"
    if kind == "union_tag_invalid":
        context = {**context, "expected_tags": ", ".join(_names(context["expected_tags"]))}
    if kind in _WORDS:
        return _WORDS[kind].format(**context)
    return fault["msg"].removeprefix("Value error, ")


def _names(listed: str) -> list[str]:
    """Return the names in pydantic's list of them: `'a', 'b' or 'c'`."""
    return _QUOTED.findall(listed) or [listed]


def _words(kind: type[BaseModel], fault: ErrorDetails) -> tuple[str, str | None]:
    """Return the text of a fault and its hint."""
    context = fault.get("ctx", {})
    match fault["type"]:
        case "extra_forbidden":
            names = _fields_at(kind, fault["loc"][:-1])
            text = f"there is no such field here, only {', '.join(names)}"
            return text, did_you_mean(str(fault["loc"][-1]), names)
        case "literal_error":
            names = _names(context["expected"])
            return plain_words(fault), did_you_mean(str(fault["input"]), names)
        case "union_tag_invalid":
            names = _names(context["expected_tags"])
            return plain_words(fault), did_you_mean(str(context["tag"]), names)
    return plain_words(fault), None


def brief(value: object) -> str:
    """Return a wrong value as messages repeat it."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _step(step: int | str) -> str:
    """Return a step of a path; one of white space alone in quotes."""
    text = str(step)
    return text if text.strip() else repr(text)


def _fields_at(kind: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Return the fields of the section at a path, as they are written."""
    _, sections = _walk(kind, path)
    return [field.alias or name for name, field in sections[0].model_fields.items()]


def _walk(
    kind: type[BaseModel], path: Sequence[int | str]
) -> tuple[list[int | str], list[type[BaseModel]]]:
    """Follow a path of pydantic."""
    written: list[int | str] = []
    here = [kind]
    for step in path:
        tagged = [each for each in here if _is_tag(each, step)]
        if not tagged:
            written.append(step)
        if isinstance(step, str):
            here = tagged or [
                inner
                for each in here
                if step in each.model_fields
                for inner in _sections(each.model_fields[step].annotation)
            ]
    return written, here


def _is_tag(kind: type[BaseModel], step: int | str) -> bool:
    """Whether a step is no field of a section, but a value that one of its fields always has."""
    fields = kind.model_fields
    return step not in fields and any(
        step in get_args(field.annotation) for field in fields.values()
    )


def _sections(hint: object) -> Iterator[type[BaseModel]]:
    """Yield the sections that a type names: those of `Rows | None` for instance."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in get_args(hint):
        yield from _sections(part)


def _place(kind: type[BaseModel], fault: ErrorDetails) -> list[int | str]:
    """Return the path of a fault; pydantic places some faults at the section."""
    place, sections = _walk(kind, fault["loc"])
    match fault["type"]:
        case "extra_forbidden":  # an unknown field is no tag, even if some field may hold its name
            place, _ = _walk(kind, fault["loc"][:-1])
            place.append(fault["loc"][-1])
        case "field_fault":
            name, *inner = fault["ctx"]["field"].split(".")
            place += [_written_name(sections, name, fault["input"]), *inner]
        case "union_tag_invalid" | "union_tag_not_found":
            place.append(fault["ctx"]["discriminator"].strip("'"))
    return place


def _written_name(sections: Sequence[type[BaseModel]], name: str, content: object) -> str:
    """Return the name that a content has for a field with several names."""
    for section in sections:
        field = section.model_fields.get(name)
        if field and isinstance(field.validation_alias, AliasChoices):
            written = content if isinstance(content, Mapping) else {}
            return next(
                (str(each) for each in field.validation_alias.choices if each in written), name
            )
    return name
