"""The keys that a server accepts."""

import hmac
from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.files import read_fault, read_text
from modnorm.serving.api_errors import ApiError

_MOST_BYTES = 2**18
_SHORTEST = 16
_SCHEME = "bearer "


class ApiKeys:
    """Accepts any of the given keys, or every request if there are none.

    Args:
        keys: The keys.
    """

    def __init__(self, keys: tuple[str, ...] = ()) -> None:
        self._keys = tuple(key.encode() for key in keys)

    @property
    def are_needed(self) -> bool:
        """Whether requests need a key."""
        return bool(self._keys)

    def check(self, authorization: str) -> None:
        """Check the Authorization header of a request.

        Raises:
            ApiError: a key is needed, and the header holds none that is accepted.
        """
        if not self._keys:
            return
        scheme, given = authorization[: len(_SCHEME)], authorization[len(_SCHEME) :]
        token = given.strip().encode("utf-8", "replace")
        matches = [hmac.compare_digest(token, key) for key in self._keys]
        if scheme.lower() != _SCHEME or not any(matches):
            raise ApiError(
                401,
                "the API key is missing or not accepted",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def read_keys(path: Path) -> ApiKeys:
    """Read a file with one key a line; blank lines and lines that start with # do not count.

    Raises:
        InvalidInputError: the file cannot be read, or has no key or a short one.
    """
    try:
        lines = [line.strip() for line in read_text(path, most=_MOST_BYTES).splitlines()]
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {read_fault(error)}", field="api-keys"
        ) from error
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys or min(map(len, keys)) < _SHORTEST:
        raise InvalidInputError(
            f"{path} has no key, or one with fewer than {_SHORTEST} characters",
            field="api-keys",
            remedy="write one key a line, for instance of `openssl rand -hex 32`",
        )
    return ApiKeys(keys)
