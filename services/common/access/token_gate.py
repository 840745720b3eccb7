"""Admission by token, for gRPC calls and for the web page."""

import logging
import os
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from pathlib import Path

import structlog

from modnorm.errors import ForbiddenError, InvalidInputError, UnauthenticatedError
from modnorm.services.common.access.callers import ANYONE, Caller
from modnorm.services.common.settings import ServiceSettings
from modnorm.wire.tokens import AcceptedToken, Role, read_tokens

CHECK_SECONDS = 1.0
"""Seconds between two checks of the file, for which a revoked token may still be accepted."""

logger = logging.getLogger(__name__)


class TokenFile:
    """Checks tokens; used in one thread.

    If the file is damaged or removed later, an error is logged and the previous tokens stay valid.
    So a mistake does not stop the whole lab.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._version = _version(path)
        self._table = read_tokens(path)
        self._checked = clock()

    def check(self, text: str) -> AcceptedToken:
        """Return the accepted token for the text that a caller sent."""
        now = self._clock()
        if not 0 <= now - self._checked < CHECK_SECONDS:
            self._checked = now
            self._refresh()
        time_now = datetime.fromtimestamp(now, UTC)
        try:
            return self._table.check(text, time_now)
        except UnauthenticatedError:
            if not self._refresh():  # a new token is accepted at once
                raise
            return self._table.check(text, time_now)

    def _refresh(self) -> bool:
        """Read the file if it has changed; return whether it has."""
        version = _version(self._path)
        if version == self._version:
            return False
        self._version = version
        try:
            self._table = read_tokens(self._path)
        except InvalidInputError as error:
            logger.error("the tokens read before stay valid: %s", error)  # noqa: TRY400 - expected
        else:
            logger.info("tokens read", extra={"tokens": len(self._table.tokens)})
        return True


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file's content; None if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - follows links: secrets are links
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class TokenGate:
    """Admits bearers of tokens: valid, and with a sufficient role. Used in one thread."""

    def __init__(self, settings: ServiceSettings) -> None:
        path = settings.accepted_tokens
        self._tokens = None if path is None else TokenFile(path)

    @property
    def open(self) -> bool:
        """Whether no token is needed."""
        return self._tokens is None

    def admit(self, token: str, purpose: str, allowed: AbstractSet[Role]) -> Caller:
        """Return the bearer of a token."""
        if self._tokens is None:
            return ANYONE
        accepted = self._tokens.check(token)
        structlog.contextvars.bind_contextvars(caller=accepted.name)
        if allowed.isdisjoint(accepted.roles):
            roles = " or ".join(sorted(allowed)) or "one that no token has"
            raise ForbiddenError(
                f"the token {accepted.name!r} may not call {purpose}",
                remedy=f"use a token with the role {roles}",
            )
        return Caller(accepted.name, accepted.tenant, frozenset(accepted.roles))
