"""The accepted tokens of a file, read again whenever it changes."""

import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from modnorm.errors import InvalidInputError, UnauthenticatedError
from modnorm.wire.tokens import AcceptedToken, read_tokens

LOOK_SECONDS = 1.0
"""Seconds between two looks at the file: that long a revoked token may still be good."""

logger = logging.getLogger(__name__)


class TokenFile:
    """Looks tokens up; used in one thread.

    A file that was damaged or removed since changes nothing but is complained about: what was
    accepted before still is, so that a slip does not stop the whole lab.

    Args:
        path: The file.
        clock: The time, in seconds since the epoch.

    Raises:
        InvalidInputError: it cannot be read at the start.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._version = _version(path)
        self._table = read_tokens(path)
        self._looked = clock()

    def check(self, text: str) -> AcceptedToken:
        """Return the token that a caller sent.

        Raises:
            UnauthenticatedError: it is not accepted, or not any more.
        """
        now = self._clock()
        if not 0 <= now - self._looked < LOOK_SECONDS:
            self._looked = now
            self._refresh()
        time_now = datetime.fromtimestamp(now, UTC)
        try:
            return self._table.check(text, time_now)
        except UnauthenticatedError:
            if not self._refresh():  # a token just made is good at once
                raise
            return self._table.check(text, time_now)

    def _refresh(self) -> bool:
        """Read the file if it is another one by now; return whether it was."""
        version = _version(self._path)
        if version == self._version:
            return False
        self._version = version
        try:
            self._table = read_tokens(self._path)
        except InvalidInputError as error:
            logger.error("the tokens of before stay in force: %s", error)  # noqa: TRY400 - says it all
        else:
            logger.info("tokens read", extra={"tokens": len(self._table.tokens)})
        return True


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with the content; None when there is no such file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - follows the links that secrets are mounted by
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
