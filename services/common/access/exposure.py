"""What a server listens behind: loopback, tokens, TLS."""

import ipaddress
import logging

import grpc
import grpc.aio

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.wire.channel import read_pair, read_pem
from services.common.settings import ServiceSettings

logger = logging.getLogger(__name__)


def open_port(server: grpc.aio.Server, address: str, settings: ServiceSettings) -> int:
    """Let a server listen, and return the port that it got.

    Args:
        server: The server.
        address: HOST:PORT; port 0 takes a free one.
        settings: Tokens and certificates.

    Raises:
        PreconditionError: everybody on the network could call it.
        InvalidInputError: a file of the settings cannot be read.
        RuntimeError: the address cannot be listened on.
    """
    _require_protection(address, settings)
    credentials = _server_credentials(settings)
    if credentials is not None and not _is_socket(address):
        return server.add_secure_port(address, credentials)
    if not is_loopback(address):
        logger.warning("no TLS: what is said can be read on the way", extra={"address": address})
    return server.add_insecure_port(address)


def is_loopback(address: str) -> bool:
    """Tell whether only this machine reaches an address."""
    if _is_socket(address):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_socket(address: str) -> bool:
    return address.startswith("unix:")


def _require_protection(address: str, settings: ServiceSettings) -> None:
    if settings.accepted_tokens or settings.allow_anonymous or is_loopback(address):
        return
    raise PreconditionError(
        f"whoever reaches {address} could use this service",
        field="MODNORM_ACCEPTED_TOKENS",
        remedy="make a file with `modnorm token create`, or listen on 127.0.0.1, or set "
        "MODNORM_ALLOW_ANONYMOUS=1 on a network where all are trusted",
    )


def _server_credentials(settings: ServiceSettings) -> grpc.ServerCredentials | None:
    """Return what TLS needs; None when it is off."""
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
        remedy="set it, or leave MODNORM_TLS_CLIENT_CERTIFICATES out",
    )
