"""Page sizes and opaque page tokens of lists."""

import base64
import binascii
import json
import math
from collections.abc import Sequence

from modnorm.errors import InvalidInputError

MAX_PAGE = 1000
_LARGEST = 2**31 - 1

Position = Sequence[str | int | float]
"""Position in a list."""


def page_size(requested: int, default: int) -> int:
    """Return the number of rows of a page."""
    if not 0 <= requested <= MAX_PAGE:
        raise InvalidInputError(
            f"a page must have 1 to {MAX_PAGE} rows, or 0 for {default}", field="page_size"
        )
    return requested or default


def encode_token(scope: str, position: Position) -> str:
    """Return the opaque token of a position.

    The scope is the method and the arguments of the list.
    """
    return base64.urlsafe_b64encode(json.dumps([scope, *position]).encode()).decode()


def decode_token(token: str, scope: str, start: Position) -> Position:
    """Return the position of a token; `start` for an empty token."""
    if not token:
        return start
    try:
        content = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _bad_token() from error
    if not isinstance(content, list) or content[:1] != [scope]:
        raise _bad_token()
    if [type(part) for part in content[1:]] != [type(part) for part in start]:
        raise _bad_token()
    if not all(map(_storable, content[1:])):
        raise _bad_token()
    return content[1:]


def _storable(part: str | float) -> bool:
    """Return whether a database can store it: a finite 32-bit number, no surrogate character."""
    if isinstance(part, str):
        return part.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in part)
    return math.isfinite(part) if isinstance(part, float) else abs(part) <= _LARGEST


def _bad_token() -> InvalidInputError:
    return InvalidInputError(
        "the page token does not belong to this list",
        field="page_token",
        remedy="pass next_page_token of the previous page, or nothing",
    )
