"""What crosses a worker call: str, int, float, list, dict and bytes, nothing else.

vLLM's serialisers turn other types into something else (a tuple into a list) or, for a tensor,
silently into a description of it; a return value that they cannot write hangs the caller.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace

from modnorm import errors
from modnorm.errors import EngineError, EvaluationError, ModnormError, PreconditionError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage

Value = str | int | float | bytes | None | list["Value"] | dict[str, "Value"]
"""What an argument or an answer is made of."""
Answer = dict[str, Value]
"""`{"value": ...}` or `{"error": name, "message": ..., "field": ..., "remedy": ...}`."""


def answer(work: Callable[[], Value]) -> Answer:
    """Do a call's work in the worker; an exception becomes an answer too."""
    try:
        return {"value": work()}
    except ModnormError as error:
        name = type(error).__name__
        return {"error": name, **_texts(error.message, error.field, error.remedy)}
    except (RuntimeError, MemoryError, OSError) as error:
        return {"error": EngineError.__name__, **_texts(f"the worker failed: {error}")}


def value_of(given: Answer) -> Value:
    """Return an answer's value.

    Raises:
        ModnormError: the call failed; its own type.
    """
    if "error" not in given:
        return given["value"]
    kind = getattr(errors, str(given["error"]), EvaluationError)
    field, remedy = given["field"], given["remedy"]
    raise kind(
        str(given["message"]),
        field=None if field is None else str(field),
        remedy=None if remedy is None else str(remedy),
    )


def pack_descriptor(descriptor: Descriptor) -> dict[str, Value]:
    """Return a descriptor as plain values; the seed as text, as it may pass 2^64."""
    packed: dict[str, Value] = asdict(descriptor)
    given = descriptor.coefficients
    packed["coefficients"] = None if given is None else list(given)
    packed["seed"] = str(descriptor.seed)
    return packed


def unpack_descriptor(packed: Mapping[str, Value]) -> Descriptor:
    """Return what `pack_descriptor` was given."""
    return Descriptor(
        noise=str(packed["noise"]),
        seed=int(str(packed["seed"])),
        method=str(packed["method"]),
        radius=float(str(packed["radius"])),
        scale_map=str(packed["scale_map"]),
        coefficients=None
        if packed["coefficients"] is None
        else unpack_floats(packed["coefficients"]),
        lineage=str(packed["lineage"]),
    )


def pack_lineage(lineage: Lineage | None, held: str | None) -> tuple[str, str]:
    """Return what ranks need to know of a lineage, and the state that they go on from.

    Args:
        lineage: What leads to a state; None for the model.
        held: The state that they hold, by digest; None where nobody knows.

    Returns:
        JSON of the lineage, without the steps that lead to that state where it is on the way;
        empty for the model. The digest of the state where steps are left out.
    """
    if lineage is None:
        return "", ""
    missing = lineage.missing(held) if held else None
    if held is None or missing is None or len(missing) == len(lineage.steps):
        return lineage.to_json(), ""
    return replace(lineage, steps=missing).to_json(), held


def unpack_lineage(packed: str, after: str, known: Lineage | None) -> Lineage | None:
    """Return the lineage that `pack_lineage` was given.

    Args:
        packed: What it returned.
        after: The state whose steps are left out; empty where none are.
        known: What the receiver was brought to last.

    Raises:
        PreconditionError: that is another state.
    """
    if not packed:
        return None
    sent = Lineage.from_json(packed)
    if not after:
        return sent
    if known is None or known.digest != after:
        raise PreconditionError(f"this worker does not hold the state {after}")
    return known.extended(*sent.steps)


def unpack_floats(values: Value) -> tuple[float, ...]:
    """Return a list of numbers as a tuple of floats."""
    if not isinstance(values, list):
        raise EngineError(f"the worker answered {type(values).__name__}, not a list")
    return tuple(float(value) for value in values if isinstance(value, (int, float)))


def _texts(
    message: str, field: str | None = None, remedy: str | None = None
) -> dict[str, str | None]:
    return {"message": message, "field": field, "remedy": remedy}
