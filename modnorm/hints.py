"""Hints for misspelt names."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from modnorm.errors import InvalidInputError

_LONGEST = 100
"""Characters of a misspelt name that are compared."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the valid name nearest to a misspelt one; None if none is near."""
    close = get_close_matches(name[:_LONGEST].casefold(), list(names), n=1)
    return close[0] if close else None


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Return the question that names the nearest valid name; None if none is near."""
    close = nearest(name, names)
    return None if close is None else f"did you mean {close}?"


def one_of(name: str, names: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the nearest valid name, then all of them."""
    valid = list(names)
    listed = f"one of {', '.join(valid)}"
    hint = did_you_mean(name, valid)
    return listed if hint is None else f"{hint} {listed}"


def require_name(name: str, names: Collection[str], field: str, kind: str) -> None:
    """Refuse anything but one of the known names."""
    if name not in names:
        raise InvalidInputError(
            f"there is no {kind} {name!r}", field=field, remedy=one_of(name, names)
        )
