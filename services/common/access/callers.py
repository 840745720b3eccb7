"""Who calls, known to everything that one call does."""

from contextvars import ContextVar
from dataclasses import dataclass

from modnorm.errors import ForbiddenError
from modnorm.wire.tokens import DEFAULT_TENANT, Role


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls."""

    name: str
    """Name of the token; empty where no token is wanted."""
    tenant: str
    """Whose experiments it creates."""
    roles: frozenset[Role]

    @property
    def scope(self) -> str | None:
        """The tenant whose experiments it sees; None for all."""
        return None if Role.OPERATE in self.roles else self.tenant


ANYONE = Caller("", DEFAULT_TENANT, frozenset(Role))
"""Whoever calls a server that wants no tokens."""

_caller: ContextVar[Caller] = ContextVar("caller")


def set_caller(caller: Caller) -> None:
    """Note who makes the call of the running task."""
    _caller.set(caller)


def current_caller() -> Caller:
    """Return who makes the call that is being answered.

    Raises:
        ForbiddenError: nobody was let in.
    """
    try:
        return _caller.get()
    except LookupError:
        raise ForbiddenError("nobody was let in") from None
