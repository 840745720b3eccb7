"""Differences between two specs."""

from collections.abc import Iterator, Mapping


def differences(
    old: Mapping[str, object], new: Mapping[str, object]
) -> Mapping[str, tuple[object, object]]:
    """Return the values of the fields that differ, by dotted name in alphabetical order.

    Returns:
        Old and new value; None for a field that a spec lacks.
    """
    before, after = dict(_fields(old)), dict(_fields(new))
    names = sorted(before.keys() | after.keys())
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: (one, other) for name, (one, other) in pairs.items() if one != other}


def _fields(section: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
