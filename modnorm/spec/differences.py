"""Where two specs differ."""

from collections.abc import Iterator, Mapping


def differences(
    there: Mapping[str, object], here: Mapping[str, object]
) -> Mapping[str, tuple[object, object]]:
    """Return the values of the fields that differ, by dotted name in alphabetical order.

    Args:
        there: A spec as JSON has it.
        here: Another.

    Returns:
        There and here; None for a field that one of them lacks.
    """
    old, new = dict(_fields(there)), dict(_fields(here))
    pairs = {name: (old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())}
    return {name: (before, after) for name, (before, after) in pairs.items() if before != after}


def _fields(section: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
