"""Blobs of the tables: compressed text, packed float32 coefficients, answer sheets."""

import json
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import attrgetter

from modnorm.search.voting import Answer

_FIELDS = attrgetter(*(field.name for field in fields(Answer)))
_SMALL_BYTES = 2**14
_write = json.JSONEncoder(allow_nan=False).encode


def pack_text(text: str) -> bytes:
    """Compress a text."""
    content = text.encode()
    if len(content) > _SMALL_BYTES:
        return zlib.compress(content)
    # The default window of 256 KiB takes longer to clear than a report to compress.
    small = zlib.compressobj(wbits=12, memLevel=5)
    return small.compress(content) + small.flush()


def unpack_text(blob: bytes) -> str:
    """Return the text that `pack_text` compressed."""
    return zlib.decompress(blob).decode()


def pack_answers(answers: Iterable[Answer]) -> bytes:
    """Compress answers; floats keep every bit."""
    return pack_text(_write([_FIELDS(answer) for answer in answers]))


def unpack_answers(blob: bytes) -> tuple[Answer, ...]:
    """Return the answers that `pack_answers` compressed."""
    return tuple(Answer(*fields) for fields in json.loads(unpack_text(blob)))


def pack_rows(rows: Sequence[int]) -> bytes:
    """Compress row numbers."""
    return pack_text(json.dumps(list(rows)))


def unpack_rows(blob: bytes) -> tuple[int, ...]:
    """Return the row numbers that `pack_rows` compressed."""
    return tuple(json.loads(unpack_text(blob)))


def pack_coefficients(coefficients: Sequence[float]) -> bytes:
    """Pack float32 values as little-endian bytes, which are equal when the values are."""
    return _little_endian(array("f", coefficients)).tobytes()


def unpack_coefficients(blob: bytes) -> tuple[float, ...]:
    """Return the values that `pack_coefficients` packed."""
    values = array("f")
    values.frombytes(blob)
    return tuple(_little_endian(values))


def _little_endian(values: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        values.byteswap()
    return values
