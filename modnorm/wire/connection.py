"""Settings of a caller's connection: addresses, credentials and their environment variables."""

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SecretStr,
    field_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from modnorm.errors import InvalidInputError
from modnorm.host import is_utf8

if TYPE_CHECKING:
    import grpc

_MOST = 2**16 - 1
"""Largest port. gRPC would take larger numbers modulo 65,536."""


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, the host without the brackets of IPv6."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > _MOST:
        raise ValueError(f"{address!r} is not HOST:PORT with a port of 0 to {_MOST}")
    return host.strip("[]"), int(port)


def is_socket(address: str) -> bool:
    return address.startswith("unix:")


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    if is_socket(address):
        return True
    host = address.rpartition(":")[0].removeprefix("dns:").strip("/[]")
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_target(address: str) -> bool:
    """Return whether gRPC may call an address; it would try others in vain until the deadline."""
    port = address.rpartition(":")[2]
    is_web = address.startswith(("http://", "https://"))
    has_space = not is_socket(address) and any(map(str.isspace, address))
    is_name = bool(address) and not is_web and not has_space
    return is_name and (not port.isdecimal() or 0 < int(port) <= _MOST)


def require_target(target: str) -> None:
    """Refuse what is no address of a lab."""
    if not (isinstance(target, str) and is_target(target)):
        raise InvalidInputError(
            f"{target!r} is no address of a lab",
            field="server",
            remedy="give HOST:PORT, for example aggregator.example:50051",
        )


def _check_address(address: str) -> str:
    return address if is_socket(address) else _check_web_address(address)


def _check_web_address(address: str) -> str:
    if address:
        try:
            split_address(address)
        except ValueError as error:
            raise PydanticCustomError("address", "{reason}", {"reason": str(error)}) from error
    return address


def _check_target(address: str) -> str:
    if address and not is_target(address):
        raise PydanticCustomError("address", "is no HOST:PORT of a service")
    return address


Address = Annotated[str, AfterValidator(_check_address)]
"""Type of a setting: an address of gRPC to listen on."""
WebAddress = Annotated[str, AfterValidator(_check_web_address)]
"""Type of a setting: an address of HTTP to listen on; an empty one listens nowhere."""
Target = Annotated[str, AfterValidator(_check_target)]
"""Type of a setting: an address to call; an empty one calls nobody."""


Metadata = Sequence[tuple[str, str | bytes]]
AUTHORIZATION = "authorization"
_SENDABLE = re.compile(r"[\x20-\x7e]+")
"""Values of a header that gRPC accepts."""


def read_pair(cert: Path | None, key: Path | None) -> tuple[bytes | None, bytes | None]:
    """Read a certificate and its key; both or neither must be set."""
    if cert is None and key is None:
        return None, None
    if cert is None or key is None:
        raise InvalidInputError(
            "a certificate and its key must be set together",
            field="MODNORM_TLS_CERT" if cert is None else "MODNORM_TLS_KEY",
            remedy="set both, or neither",
        )
    return read_pem(cert, "tls_cert"), read_pem(key, "tls_key")


def read_pem(path: Path, setting: str) -> bytes:
    """Read a file that a setting names."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"cannot read {path}: {error.strerror}", field=f"MODNORM_{setting.upper()}"
        ) from error


_PROXY = re.compile(r"http://([^@/\s]+@)?(\[[0-9a-fA-F:.]+\]|[^:@/\s]+)(:\d{1,5})?/?")


def split_paths(value: object) -> object:
    """Split `/a:/b` into paths; an empty text is no path."""
    if isinstance(value, str):
        return tuple(path for path in value.split(os.pathsep) if path)
    return value


def _refuse_empty(value: object) -> object:
    """Refuse an empty path, which would mean the current directory."""
    if value == "":
        raise PydanticCustomError("empty_path", "is empty: name a path, or leave it unset")
    return value


def _check_proxy(proxy: SecretStr) -> SecretStr:
    """Refuse what gRPC would ignore, and so call directly."""
    url = proxy.get_secret_value()
    if url and not _PROXY.fullmatch(url):
        raise PydanticCustomError("proxy", "is not http://HOST:PORT")
    return proxy


GivenPath = Annotated[Path, BeforeValidator(_refuse_empty)]
"""A path that is not empty. An empty text is no default either, since the default of a certificate
or a token file is to have none."""


class Credentials(BaseModel):
    """Token, certificate and proxy of a caller; each may be absent."""

    # Inputs are not repeated in errors: some are secrets.
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    token: SecretStr = SecretStr("")
    """Bearer token, as `modnorm token create` printed it."""
    token_file: GivenPath | None = None
    """File that holds the token, read at every call, so that it may be replaced at any time;
    instead of `token`."""
    tls_ca: GivenPath | None = None
    """Authorities that must have signed the other side's certificate, PEM; turns TLS on."""
    tls_cert: GivenPath | None = None
    """Own certificate chain, PEM."""
    tls_key: GivenPath | None = None
    """Private key of `tls_cert`, PEM."""
    proxy: Annotated[SecretStr, AfterValidator(_check_proxy)] = SecretStr("")
    """`http://[USER:PASSWORD@]HOST:PORT`, the proxy of calls to other machines. `http_proxy` does
    not count: it is for downloads."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_other_encodings(cls, value: object) -> object:
        if isinstance(value, str | Path) and not is_utf8(str(value)):
            raise PydanticCustomError("encoding", "is not UTF-8 under a locale of UTF-8")
        return value

    def require_authorities(self) -> None:
        """Refuse a certificate without authorities: the token would travel in plain text.

        Services need not call this: they serve with a certificate, and may call others of their
        network in plain text.
        """
        if self.tls_ca is None and (self.tls_cert or self.tls_key):
            raise InvalidInputError(
                "there is a certificate but no authorities, so nothing would be encrypted",
                field="MODNORM_TLS_CA",
                remedy="name the certificates of the lab's authorities, or unset both",
            )

    def metadata(self) -> Metadata:
        """Return the metadata of every call."""
        token, setting = self.token.get_secret_value(), "token"
        if self.token_file is not None:
            setting = "token_file"
            token = read_pem(self.token_file, setting).decode(errors="replace").strip()
        if not token:
            return ()
        if not _SENDABLE.fullmatch(token):
            raise InvalidInputError(
                "holds no token: it has a line break, or a character that no token has",
                field=f"MODNORM_{setting.upper()}",
                remedy="give one line, as `modnorm token create` printed it",
            )
        return ((AUTHORIZATION, f"Bearer {token}"),)

    def channel(self) -> "grpc.ChannelCredentials | None":
        """Return the credentials of gRPC; None for plain text."""
        if self.tls_ca is None:
            return None
        import grpc  # noqa: PLC0415 - settings hold credentials, and need no grpc

        chain, key = read_pair(self.tls_cert, self.tls_key)
        return grpc.ssl_channel_credentials(read_pem(self.tls_ca, "tls_ca"), key, chain)


class ConnectionSettings(BaseSettings, Credentials):
    """Credentials of the environment; services are callers, too."""

    model_config = SettingsConfigDict(
        env_prefix="MODNORM_", frozen=True, hide_input_in_errors=True
    )


@dataclass(frozen=True, slots=True)
class LabAccess:
    """The address of a lab's aggregator, and credentials that it accepts."""

    target: str
    credentials: Credentials
