"""Encodes values of built-in types as JSON, in the untrusted process.

A value of another type is sent as its type's name and equals nothing.
`modnorm.sandbox.value_decoding` decodes values in the caller's process.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

_DICT_SETS: tuple[type, ...] = (type({}.keys()), type({}.items()))


def _many(items: Iterable[object]) -> list[object]:
    return [encode(item) for item in items]


_ENCODERS: Sequence[tuple[type | tuple[type, ...], Callable[..., list[object]]]] = (
    (int, lambda value: ["int", format(int(value), "x")]),
    (float, lambda value: ["float", float.hex(value)]),
    (complex, lambda value: ["complex", value.real.hex(), value.imag.hex()]),
    (list, lambda value: ["list", _many(value)]),
    (tuple, lambda value: ["tuple", _many(value)]),
    (dict, lambda value: ["dict", _many(value.items())]),
    (frozenset, lambda value: ["frozenset", _many(value)]),
    ((set, *_DICT_SETS), lambda value: ["set", _many(value)]),
    ((bytes, bytearray), lambda value: ["bytes", value.hex()]),
    (deque, lambda value: ["deque", _many(value)]),
    (Decimal, lambda value: ["decimal", str(value)]),
    (Fraction, lambda value: ["fraction", f"{value.numerator:x}", f"{value.denominator:x}"]),
)


def encode(value: object) -> object:
    """Return a value in a form for `json.dumps`; subclasses become their built-in base.

    Raises:
        RecursionError: the value is nested too deep, or contains itself.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind):
            return encoder(value)
    return ["opaque", type(value).__qualname__]
