"""Channels to servers: plain or TLS, each call with the caller's bearer token."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import grpc
from pydantic import SecretStr

from modnorm.errors import InvalidInputError, PreconditionError

Options = Sequence[tuple[str, str | int]]
Metadata = Sequence[tuple[str, str | bytes]]
AUTHORIZATION = "authorization"
_SENDABLE = re.compile(r"[\x20-\x7e]+")
"""What gRPC takes for the value of a header."""

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a caller shows: a token, a certificate, both or nothing."""

    token: SecretStr = field(default_factory=lambda: SecretStr(""))
    token_file: Path | None = None
    """Read at every call, so that a token may be replaced meanwhile."""
    tls_ca: Path | None = None
    """Authorities that the server's certificate must be of; None for a connection in clear."""
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def require_authorities(self) -> None:
        """Refuse a certificate that would be shown to nobody: the token would go in clear.

        Services may have one to serve with, and call others of their network in clear.

        Raises:
            InvalidInputError: there is one, and no authorities.
        """
        if self.tls_ca is None and (self.tls_cert or self.tls_key):
            raise InvalidInputError(
                "a certificate is given, but no authorities, so that nothing would be encrypted",
                field="MODNORM_TLS_CA",
                remedy="name the certificates of the lab's authorities, or leave the pair out",
            )

    def metadata(self) -> Metadata:
        """Return what every call carries.

        Raises:
            InvalidInputError: the file of the token cannot be read, or what is there is no token.
        """
        token, setting = self.token.get_secret_value(), "token"
        if self.token_file is not None:
            setting = "token_file"
            token = read_pem(self.token_file, setting).decode(errors="replace").strip()
        if not token:
            return ()
        if not _SENDABLE.fullmatch(token):
            raise InvalidInputError(
                "what is there is no token: it has a line break, or a character that no token has",
                field=f"MODNORM_{setting.upper()}",
                remedy="give one line, as `modnorm token create` printed it",
            )
        return ((AUTHORIZATION, f"Bearer {token}"),)

    def channel(self) -> grpc.ChannelCredentials | None:
        """Return gRPC's own credentials; None for a connection in clear.

        Raises:
            InvalidInputError: a file cannot be read, or a setting lacks its counterpart.
        """
        if self.tls_ca is None:
            return None
        chain, key = read_pair(self.tls_cert, self.tls_key)
        return grpc.ssl_channel_credentials(read_pem(self.tls_ca, "tls_ca"), key, chain)


def read_pair(cert: Path | None, key: Path | None) -> tuple[bytes | None, bytes | None]:
    """Read a certificate and its key, which are given both or not at all.

    Raises:
        InvalidInputError: a file cannot be read, or one of the two is missing.
    """
    if cert is None and key is None:
        return None, None
    if cert is None or key is None:
        raise InvalidInputError(
            "a certificate and its key are given together",
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


def open_channel(target: str, credentials: Credentials, options: Options) -> grpc.Channel:
    """Open a blocking channel; it connects at the first call.

    Args:
        target: HOST:PORT, or `unix:PATH`, which needs no TLS.
        credentials: What the caller shows.
        options: Options of the channel.

    Raises:
        InvalidInputError: a file of the credentials cannot be read.
    """
    tls = None if target.startswith("unix:") else credentials.channel()
    channel = (
        grpc.insecure_channel(target, options=options)
        if tls is None
        else grpc.secure_channel(target, tls, options=options)
    )
    showing = _Showing(credentials, channel.close)
    channel.close = showing.close  # type: ignore[method-assign]  # whoever closes it comes by here
    return grpc.intercept_channel(channel, showing)


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Metadata | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _Showing(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]  # only in its stubs
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]  # the same
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]  # the same
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]  # the same
):
    """Adds the token to each call, whatever its kind; refuses calls over a closed channel.

    gRPC ends the whole process by a segmentation fault there, where a channel has interceptors.
    """

    def __init__(self, credentials: Credentials, close: Callable[[], None]) -> None:
        self._credentials = credentials
        self._close = close
        self._is_closed = False

    def close(self) -> None:
        """Close the channel."""
        self._is_closed = True
        self._close()

    def _show(
        self,
        continuation: Callable[[grpc.ClientCallDetails, RequestT], ResultT],
        details: grpc.ClientCallDetails,
        request: RequestT,
    ) -> ResultT:
        if self._is_closed:
            raise PreconditionError(
                "the connection is closed", remedy="make calls, and read streams, before it is"
            )
        shown = _Details(
            details.method,
            details.timeout,
            (*(details.metadata or ()), *self._credentials.metadata()),
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        return continuation(cast("grpc.ClientCallDetails", shown), request)

    intercept_unary_unary = _show  # type: ignore[assignment]  # one way for all four kinds
    intercept_unary_stream = _show  # type: ignore[assignment]  # the same
    intercept_stream_unary = _show  # type: ignore[assignment]  # the same
    intercept_stream_stream = _show  # type: ignore[assignment]  # the same
