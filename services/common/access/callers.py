"""The caller of the present call, in a context variable."""

from contextvars import ContextVar
from dataclasses import dataclass

from modnorm.errors import ForbiddenError
from modnorm.wire.tokens import DEFAULT_TENANT, Role


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller, identified by its token."""

    name: str
    """Name of the token; empty if the server requires none."""
    tenant: str
    """The tenant that owns the experiments it creates."""
    roles: frozenset[Role]

    @property
    def scope(self) -> str | None:
        """The tenant whose experiments the caller can see; None for all."""
        return None if Role.OPERATE in self.roles else self.tenant


ANYONE = Caller("", DEFAULT_TENANT, frozenset(Role))
"""The caller at a server that requires no tokens."""

_caller: ContextVar[Caller] = ContextVar("caller")


def set_caller(caller: Caller) -> None:
    """Set the caller of the running task."""
    _caller.set(caller)


def current_caller() -> Caller:
    """Return the caller of the present call."""
    try:
        return _caller.get()
    except LookupError:
        raise ForbiddenError("no caller was admitted") from None
