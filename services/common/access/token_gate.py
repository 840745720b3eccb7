"""Admission by token, for gRPC calls and for the web page."""

from collections.abc import Set as AbstractSet

import structlog

from modnorm.errors import ForbiddenError
from modnorm.wire.tokens import AcceptedToken, Role
from services.common.access.callers import ANYONE, Caller
from services.common.access.rate_limits import RateLimits
from services.common.access.token_file import TokenFile
from services.common.settings import ServiceSettings


class TokenGate:
    """Admits bearers of tokens: valid, with a sufficient role, within their rate.

    Used in one thread. Each gate counts rates by itself.

    Raises:
        InvalidInputError: the file of accepted tokens cannot be read.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        path = settings.accepted_tokens
        self._tokens = None if path is None else TokenFile(path)
        self._rate, self._worker_rate = settings.rate_limit, settings.worker_rate_limit
        self._limits = RateLimits()

    @property
    def open(self) -> bool:
        """Whether no token is needed."""
        return self._tokens is None

    def admit(
        self, token: str, purpose: str, allowed: AbstractSet[Role], *, calls: int = 1
    ) -> Caller:
        """Return the bearer of a token.

        Args:
            token: Text of the token; not read where none is needed.
            purpose: What the bearer wants to call, for error messages.
            allowed: Roles; one of them suffices.
            calls: Calls that count against the rate.

        Raises:
            UnauthenticatedError: the token is unknown, revoked or expired.
            ForbiddenError: it has none of the roles.
            RateLimitedError: there were too many calls.
        """
        if self._tokens is None:
            return ANYONE
        accepted = self._tokens.check(token)
        structlog.contextvars.bind_contextvars(caller=accepted.name)
        if calls:
            self._limits.take(accepted.name, self._rate_of(accepted), calls)
        if allowed.isdisjoint(accepted.roles):
            roles = " or ".join(sorted(allowed)) or "one that no token has"
            raise ForbiddenError(
                f"the token {accepted.name!r} may not call {purpose}",
                remedy=f"use a token with the role {roles}",
            )
        return Caller(accepted.name, accepted.tenant, frozenset(accepted.roles))

    def _rate_of(self, token: AcceptedToken) -> float:
        if token.rate is not None:
            return token.rate
        of_services = {Role.WORKER, Role.INTERNAL} & set(token.roles)
        return self._worker_rate if of_services else self._rate
