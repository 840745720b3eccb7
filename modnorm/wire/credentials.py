"""Credentials of a caller: token, certificate, proxy. Needs no grpc to be read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    import grpc

Metadata = Sequence[tuple[str, str | bytes]]
AUTHORIZATION = "authorization"
_SENDABLE = re.compile(r"[\x20-\x7e]+")
"""Values of a header that gRPC accepts."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Token, certificate and proxy of a caller; each may be absent."""

    token: SecretStr = field(default_factory=lambda: SecretStr(""))
    token_file: Path | None = None
    """Read at every call, so that the token may be replaced at any time."""
    tls_ca: Path | None = None
    """Authorities that must have signed the server's certificate; None for plain text."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxy: SecretStr = field(default_factory=lambda: SecretStr(""))
    """`http://[USER:PASSWORD@]HOST:PORT` to other machines; empty to call them directly."""

    def require_authorities(self) -> None:
        """Refuse a certificate without authorities: the token would travel in plain text.

        Services need not call this: they serve with a certificate, and may call others of their
        network in plain text.

        Raises:
            InvalidInputError: there is a certificate, but there are no authorities.
        """
        if self.tls_ca is None and (self.tls_cert or self.tls_key):
            raise InvalidInputError(
                "there is a certificate but no authorities, so nothing would be encrypted",
                field="MODNORM_TLS_CA",
                remedy="name the certificates of the lab's authorities, or unset both",
            )

    def metadata(self) -> Metadata:
        """Return the metadata of every call.

        Raises:
            InvalidInputError: the token file cannot be read, or holds no token.
        """
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
        """Return the credentials of gRPC; None for plain text.

        Raises:
            InvalidInputError: a file cannot be read, or a setting lacks its counterpart.
        """
        if self.tls_ca is None:
            return None
        import grpc  # noqa: PLC0415 - settings hold credentials, and need no grpc

        chain, key = read_pair(self.tls_cert, self.tls_key)
        return grpc.ssl_channel_credentials(read_pem(self.tls_ca, "tls_ca"), key, chain)


def read_pair(cert: Path | None, key: Path | None) -> tuple[bytes | None, bytes | None]:
    """Read a certificate and its key; both or neither must be set.

    Raises:
        InvalidInputError: a file cannot be read, or one of the two is missing.
    """
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
    """Read a file that a setting names.

    Raises:
        InvalidInputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"cannot read {path}: {error.strerror}", field=f"MODNORM_{setting.upper()}"
        ) from error
