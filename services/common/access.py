"""Access control: callers, roles, tokens, and the protection of a server's port."""

import logging
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import grpc
import grpc.aio
import structlog

from modnorm.errors import (
    ForbiddenError,
    InvalidInputError,
    PreconditionError,
    UnauthenticatedError,
)
from modnorm.services.common.settings import ServiceSettings
from modnorm.wire.connection import is_loopback, is_socket, read_pair, read_pem
from modnorm.wire.tokens import DEFAULT_TENANT, AcceptedToken, Role, read_tokens


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


_SEE = frozenset({Role.READ, Role.OPERATE})
_SUBMIT, _WORKER, _INTERNAL = (
    frozenset({role}) for role in (Role.SUBMIT, Role.WORKER, Role.INTERNAL)
)
ALLOWED: Mapping[str, frozenset[Role]] = MappingProxyType(
    {
        "/modnorm.v1.ExperimentService/CreateExperiment": _SUBMIT,
        "/modnorm.v1.ExperimentService/CancelExperiment": _SUBMIT | {Role.OPERATE},
        "/modnorm.v1.ExperimentService/GetExperiment": _SEE,
        "/modnorm.v1.ExperimentService/ListExperiments": _SEE,
        "/modnorm.v1.ExperimentService/WatchExperiment": _SEE,
        "/modnorm.v1.ExperimentService/ListRunFiles": _SEE,
        "/modnorm.v1.ExperimentService/GetRunFile": _SEE,
        "/modnorm.v1.JobService/ClaimJob": _WORKER,
        "/modnorm.v1.JobService/Heartbeat": _WORKER,
        "/modnorm.v1.JobService/ReportJob": _WORKER,
        "/modnorm.v1.JobService/FailJob": _WORKER,
        "/modnorm.v1.JobService/FetchArtifact": _WORKER,
        "/modnorm.v1.JobService/FetchLineage": _WORKER,
        "/modnorm.v1.CalibrationService/Calibrate": _INTERNAL,
        "/modnorm.v1.CalibrationService/GetProfile": _INTERNAL,
        "/modnorm.v1.SamplingService/InspectModel": _INTERNAL,
        "/modnorm.v1.SamplingService/BuildScaleMap": _INTERNAL,
        "/modnorm.v1.SamplingService/SampleDescriptors": _INTERNAL,
        "/modnorm.v1.SandboxService/Execute": _WORKER | _INTERNAL,
        "/modnorm.v1.SandboxService/GetIsolation": _WORKER | _INTERNAL,
        "/modnorm.v1.StatusService/GetStatus": _SEE | _INTERNAL,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": frozenset(Role),
    }
)
"""Roles by full method name; one of them suffices."""

PAGE = _SEE
"""Roles that may read the web page; one of them suffices."""

OPEN = "/grpc.health.v1.Health/"
"""Prefix of the methods without access control, which are health checks."""


CHECK_SECONDS = 1.0
"""Seconds between two checks of the file, for which a revoked token may still be accepted."""

logger = logging.getLogger(__name__)


class TokenFile:
    """Checks tokens; used in one thread.

    If the file is damaged or removed later, an error is logged and the previous tokens stay valid.
    So a mistake does not stop the whole lab.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = _version(path)
        self._table = read_tokens(path)
        self._checked = time.time()

    def check(self, text: str) -> AcceptedToken:
        """Return the accepted token for the text that a caller sent."""
        now = time.time()
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
        status = path.stat()  # of a link's target: secrets are links
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


def open_port(server: grpc.aio.Server, address: str, settings: ServiceSettings) -> int:
    """Add a port to a server; return its number."""
    require_protection(address, settings)
    credentials = _server_credentials(settings)
    if credentials is not None and not is_socket(address):
        return server.add_secure_port(address, credentials)
    if not is_loopback(address):
        logger.warning("no TLS: calls are not encrypted", extra={"address": address})
    return server.add_insecure_port(address)


def require_protection(address: str, settings: ServiceSettings) -> None:
    """Check that only this machine, or only bearers of tokens, can use an address."""
    if settings.accepted_tokens or settings.allow_anonymous or is_loopback(address):
        return
    raise PreconditionError(
        f"everybody who reaches {address} could use this service",
        field="MODNORM_ACCEPTED_TOKENS",
        remedy="create a token file with `modnorm token create`, listen on 127.0.0.1, or set "
        "MODNORM_ALLOW_ANONYMOUS=1 on a trusted network",
    )


def _server_credentials(settings: ServiceSettings) -> grpc.ServerCredentials | None:
    """Return the TLS credentials of the server; None if TLS is off."""
    mutual = settings.tls_client_certificates
    chain, key = read_pair(settings.tls_cert, settings.tls_key)
    if chain is None or key is None:
        if mutual:
            raise _missing("MODNORM_TLS_CERT")
        return None
    if mutual and settings.tls_ca is None:
        raise _missing("MODNORM_TLS_CA")
    authorities = read_pem(settings.tls_ca, "tls_ca") if mutual and settings.tls_ca else None
    return grpc.ssl_server_credentials([(key, chain)], authorities, mutual)


def _missing(setting: str) -> InvalidInputError:
    return InvalidInputError(
        "client certificates cannot be checked without it",
        field=setting,
        remedy="set it, or unset MODNORM_TLS_CLIENT_CERTIFICATES",
    )
