"""Answer sheets: the answers of one job, in a report as in the database."""

import json
import zlib
from collections.abc import Iterable

from pydantic import TypeAdapter

from modnorm.errors import InvalidInputError, TooLargeError
from modnorm.search.answers import Answer, answer_fields

MAX_BYTES = 2**28
"""Most bytes of a sheet that a worker sends, uncompressed."""
_ROWS = TypeAdapter(list[tuple[int, str, float, str | None, bool, int, bool]])
_SMALL_BYTES = 2**14
_write = json.JSONEncoder(allow_nan=False).encode


def pack_text(text: str) -> bytes:
    content = text.encode()
    if len(content) > _SMALL_BYTES:
        return zlib.compress(content)
    # The default window of 256 KiB takes longer to clear than a report to compress.
    small = zlib.compressobj(wbits=12, memLevel=5)
    return small.compress(content) + small.flush()


def unpack_text(blob: bytes) -> str:
    return zlib.decompress(blob).decode()


def pack_answers(answers: Iterable[Answer]) -> bytes:
    """Return the sheet of answers in row order; floats keep every bit."""
    return pack_text(_write([answer_fields(answer) for answer in answers]))


def unpack_answers(sheet: bytes) -> tuple[Answer, ...]:
    """Return the answers of a stored sheet."""
    return tuple(Answer(*row) for row in json.loads(unpack_text(sheet)))


def read_answers(sheet: bytes) -> tuple[Answer, ...]:
    """Return the answers of a sheet that a worker sent."""
    decompression = zlib.decompressobj()
    try:
        text = decompression.decompress(sheet, MAX_BYTES)
        if len(text) == MAX_BYTES:
            raise TooLargeError(f"the answers have {MAX_BYTES:,} bytes or more", field="answers")
        rows = text if decompression.eof else b"it is not complete"
        return tuple(Answer(*row) for row in _ROWS.validate_json(rows, strict=True))
    except (zlib.error, ValueError) as error:
        raise InvalidInputError("the answers cannot be read", field="answers") from error
