"""Checks of arguments that callers give in Python, where no schema checks them."""

import math
import os
import reprlib
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.hints import one_of


def require_index(value: object, field: str, *, least: int | None = 0) -> None:
    """Refuse anything but a whole number from `least` on; None has no bound."""
    is_bool = isinstance(value, bool)  # Python counts it among the integers
    if isinstance(value, Integral) and not is_bool and (least is None or int(value) >= least):
        return
    bound = "" if least is None else f" of at least {least}"
    raise _refused(value, "index", field, f"give a whole number{bound}")


def require_seconds(value: object, field: str, *, endless: bool = False) -> None:
    """Refuse anything but a number from 0 on; infinity is one if the time may be endless."""
    seconds = float(value) if isinstance(value, Real) and not isinstance(value, bool) else -1.0
    if seconds >= 0 and (endless or seconds < math.inf):
        return
    kind = "number" if endless else "finite number"
    raise _refused(value, "number of seconds", field, f"give a {kind} of at least 0")


def require_flag(value: object, field: str) -> None:
    """Refuse anything but True and False: most texts, `"no"` too, would count as True."""
    if not isinstance(value, bool):
        raise _refused(value, "truth value", field, "give True or False")


def require_text(value: object, field: str) -> None:
    """Refuse anything but a string."""
    if not isinstance(value, str):
        raise _refused(value, "text", field, "give a string")


def require_name(value: object, names: Collection[str], field: str, kind: str) -> None:
    """Refuse anything but one of the known names."""
    require_text(value, field)
    if value not in names:
        raise InvalidInputError(
            f"there is no {kind} {value!r}", field=field, remedy=one_of(str(value), names)
        )


def require_path(value: object, field: str) -> Path:
    """Return a path given as a string or a path."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str) and "\0" not in path:
            return Path(path)
    raise _refused(value, "path", field, "give a string or a pathlib.Path")


def require_several(value: object, field: str, kind: str) -> None:
    """Refuse a single value: iterating over a row yields columns, over a string characters."""
    if isinstance(value, Mapping | str | bytes) or not isinstance(value, Iterable):
        raise _refused(value, f"list of {kind}", field, f"give a list of {kind}")


def require_function(value: object, field: str) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise _refused(value, "function", field, "give a function")


def require_type(value: object, kind: type, field: str) -> None:
    """Refuse what is no instance of a class."""
    if not isinstance(value, kind):
        name = kind.__name__
        raise _refused(value, name, field, f"give an instance of {kind.__module__}.{name}")


def _refused(value: object, kind: str, field: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(f"{reprlib.repr(value)} is no {kind}", field=field, remedy=remedy)
