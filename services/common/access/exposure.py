"""The port of a server, protected by loopback, tokens or TLS."""

import logging

import grpc
import grpc.aio

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.services.common.settings import ServiceSettings
from modnorm.wire.connection import is_loopback, is_socket, read_pair, read_pem

logger = logging.getLogger(__name__)


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
