"""Arguments and answers of worker calls: str, int, float, list, dict and bytes only.

vLLM's serialisers change other types, for instance a tuple into a list. A return value that they
cannot write blocks the caller.
"""

from collections.abc import Callable
from dataclasses import replace

from pydantic import TypeAdapter

from modnorm import errors
from modnorm.errors import EngineError, EvaluationError, ModnormError, PreconditionError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage

Value = str | int | float | bytes | None | list["Value"] | dict[str, "Value"]
"""An argument or an answer."""
Answer = dict[str, Value]
"""`{"value": ...}` or `{"error": name, "message": ..., "field": ..., "remedy": ...}`."""
_DESCRIPTOR = TypeAdapter(Descriptor)


def answer(work: Callable[[], Value]) -> Answer:
    """Do a call's work in the worker; an exception becomes an answer."""
    try:
        return {"value": work()}
    except ModnormError as error:
        name = type(error).__name__
        return _failure(name, error.message, error.field, error.remedy)
    except (RuntimeError, MemoryError, OSError) as error:
        return _failure(EngineError.__name__, f"the worker failed: {error}")


def _failure(
    name: str, message: str, field: str | None = None, remedy: str | None = None
) -> Answer:
    return {"error": name, "message": message, "field": field, "remedy": remedy}


def value_of(received: Answer) -> Value:
    if "error" not in received:
        return received["value"]
    kind = getattr(errors, str(received["error"]), EvaluationError)
    field, remedy = received["field"], received["remedy"]
    raise kind(
        str(received["message"]),
        field=None if field is None else str(field),
        remedy=None if remedy is None else str(remedy),
    )


def pack_descriptor(descriptor: Descriptor) -> bytes:
    """Return a descriptor as JSON."""
    return _DESCRIPTOR.dump_json(descriptor)


def unpack_descriptor(packed: bytes) -> Descriptor:
    return _DESCRIPTOR.validate_json(packed)


def pack_lineage(lineage: Lineage | None, held: str | None) -> tuple[str, str]:
    """Return the part of a lineage that ranks lack, and the state that it continues.

    Returns:
        JSON of the lineage without the steps that lead to `held`, empty for the model; and `held`
        if steps are omitted, else empty.
    """
    if lineage is None:
        return "", ""
    missing = lineage.missing(held) if held else None
    if held is None or missing is None or len(missing) == len(lineage.steps):
        return lineage.to_json(), ""
    return replace(lineage, steps=missing).to_json(), held


def unpack_lineage(packed: str, after: str, held: Lineage | None) -> Lineage | None:
    if not packed:
        return None
    sent = Lineage.from_json(packed)
    if not after:
        return sent
    if held is None or held.digest != after:
        raise PreconditionError(f"this worker does not hold the state {after}")
    return held.extended(*sent.steps)
