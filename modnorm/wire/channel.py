"""Channels to servers: plain or TLS, each call with the caller's bearer token."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

import grpc
import grpc.aio

from modnorm.errors import PreconditionError
from modnorm.wire.connection import Credentials, Metadata, is_loopback, is_socket

Options = Sequence[tuple[str, str | int]]

KEEPALIVE_SECONDS = 30

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


def channel_options(
    methods: Sequence[Mapping[str, str]],
    *,
    most_bytes: int,
    throttling: Mapping[str, float] | None = None,
) -> Options:
    """Return options of a channel: retries, keepalive and the size of responses."""
    policy = {
        "maxAttempts": 5,
        "initialBackoff": "0.1s",
        "maxBackoff": "2s",
        "backoffMultiplier": 3,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config: dict[str, object] = {"methodConfig": [{"name": list(methods), "retryPolicy": policy}]}
    if throttling:
        config["retryThrottling"] = throttling
    return (
        ("grpc.service_config", json.dumps(config)),
        ("grpc.max_receive_message_length", most_bytes),
        # A stream may be silent for minutes; keepalives detect a dead connection.
        ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
        ("grpc.keepalive_timeout_ms", 10_000),
    )


def open_channel(target: str, credentials: Credentials, options: Options) -> grpc.Channel:
    """Open a blocking channel; it connects at the first call."""
    tls = None if is_socket(target) else credentials.channel()
    options = (*options, _proxy_option(target, credentials))
    channel = (
        grpc.insecure_channel(target, options=options)
        if tls is None
        else grpc.secure_channel(target, tls, options=options)
    )
    interceptor = _TokenInterceptor(credentials, channel.close)
    channel.close = interceptor.close  # type: ignore[method-assign]  # every caller closes through the interceptor
    return grpc.intercept_channel(channel, interceptor)


def open_async_channel(
    target: str, credentials: Credentials, options: Options
) -> grpc.aio.Channel:
    """Open a channel in the running event loop; callers send the token themselves.

    Arguments and errors are those of `open_channel`.
    """
    tls = None if is_socket(target) else credentials.channel()
    options = (*options, _proxy_option(target, credentials))
    if tls is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, tls, options=options)


def _proxy_option(target: str, credentials: Credentials) -> tuple[str, str | int]:
    """Return gRPC's option of a channel's proxy; by itself gRPC takes that of `http_proxy`.

    This variable serves downloads. Its proxy often reaches no lab, and would see tokens.
    """
    proxy = credentials.proxy.get_secret_value()
    if not proxy or is_loopback(target):
        return ("grpc.enable_http_proxy", 0)
    return ("grpc.http_proxy", proxy)


def closed_connection() -> PreconditionError:
    return PreconditionError(
        "the connection is closed", remedy="make calls and read streams before you close it"
    )


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Metadata | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _TokenInterceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]  # only in its stubs
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]  # only in its stubs
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]  # only in its stubs
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]  # only in its stubs
):
    """Adds the token to each call, and refuses calls on a closed channel.

    With interceptors, gRPC would crash the process there with a segmentation fault.
    """

    def __init__(self, credentials: Credentials, close: Callable[[], None]) -> None:
        self._credentials = credentials
        self._close = close
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        self._close()

    def _call(
        self,
        continuation: Callable[[grpc.ClientCallDetails, RequestT], ResultT],
        details: grpc.ClientCallDetails,
        request: RequestT,
    ) -> ResultT:
        if self._is_closed:
            raise closed_connection()
        shown = _Details(
            details.method,
            details.timeout,
            (*(details.metadata or ()), *self._credentials.metadata()),
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        return continuation(cast("grpc.ClientCallDetails", shown), request)

    intercept_unary_unary = _call  # type: ignore[assignment]  # one way for all four kinds
    intercept_unary_stream = _call  # type: ignore[assignment]  # one way for all four kinds
    intercept_stream_unary = _call  # type: ignore[assignment]  # one way for all four kinds
    intercept_stream_stream = _call  # type: ignore[assignment]  # one way for all four kinds
