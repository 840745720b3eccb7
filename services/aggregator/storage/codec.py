"""Blobs of the tables: row numbers and packed float32 coefficients."""

import json
import sys
from array import array
from collections.abc import Sequence

from modnorm.wire.answer_sheets import pack_text, unpack_text


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
