"""Checks of indices that callers give."""

from numbers import Integral

from modnorm.errors import InvalidInputError


def require_index(value: object, field: str, *, least: int | None = 0) -> None:
    """Refuse what is neither None nor a whole number from `least` on; None has no bound.

    Raises:
        InvalidInputError: it is of another type, or too small.
    """
    if value is None:
        return
    is_bool = isinstance(value, bool)  # Python counts it among the integers
    if isinstance(value, Integral) and not is_bool and (least is None or int(value) >= least):
        return
    raise InvalidInputError(
        f"{value!r} is no index",
        field=field,
        remedy="give a whole number" + ("" if least is None else f" of at least {least}"),
    )
