"""The untrusted process: runs source and answers with values until it is killed.

Nothing in this process is trusted after the first statement of a program. The caller compares the
returned values with expected ones, which it never sends.
"""

import contextlib
import json
import linecache
import os
import random
import struct
import sys
import types
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
    """Return a value in a form for `json.dumps`; subclasses become their built-in base."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    for kind, encoder in _ENCODERS:
        if isinstance(value, kind):
            return encoder(value)
    return ["opaque", type(value).__qualname__]


CHANNEL = 3
MODULE = "program"
EXIT_MEMORY = 77
_HEADER = struct.Struct(">I")


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(CHANNEL, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data


def _describe(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001  # the error's class is the program's
        text = ""
    return f"{type(error).__name__}: {text}"[:500]


def _answer(namespace: dict[str, object], request: dict[str, str]) -> dict[str, object]:
    """Run a step: the statements in "run", or the expression in "value", whose value is sent."""
    try:
        if "run" in request:
            exec(compile(request["run"], "<program>", "exec"), namespace)  # noqa: S102
            return {}
        value = eval(compile(request["value"], "<test>", "eval"), namespace)  # noqa: S307
        return {"value": encode(value)}
    except MemoryError:
        return {"raised": "MemoryError", "memory": True}
    except BaseException as error:  # noqa: BLE001  # SystemExit is an answer, too
        return {"raised": _describe(error)}


def serve() -> None:
    """Answer requests in the namespace of a module named "program"."""
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    random.seed(0)
    linecache.clearcache()
    while True:
        (size,) = _HEADER.unpack(_read(_HEADER.size))
        request = json.loads(_read(size))
        try:
            reply = json.dumps(_answer(module.__dict__, request)).encode()
        except MemoryError:
            os._exit(EXIT_MEMORY)
        except RecursionError:
            reply = b'{"raised": "RecursionError: the value is nested too deep"}'
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        view = memoryview(_HEADER.pack(len(reply)) + reply)
        while view:
            view = view[os.write(CHANNEL, view) :]
