"""Channels to other services, with common limits, keepalive and retries."""

from collections.abc import Sequence

import grpc.aio

from modnorm.wire.channel import Options, channel_options, open_async_channel
from modnorm.wire.connection import Credentials

MESSAGE_BYTES = 64 * 2**20
"""Largest accepted message, which holds the prompts of a few thousand rows."""
CALL_SECONDS = 30.0
"""Default deadline of a call."""

FLOW: Sequence[tuple[str, int]] = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 2**18),
)
"""A fixed flow-control window in bytes. By default both ends measure the window with a ping per
message, which doubles the packets of small calls."""

_IDEMPOTENT: Sequence[dict[str, str]] = (
    {"service": "modnorm.v1.ExperimentService"},
    {"service": "modnorm.v1.CalibrationService"},
    {"service": "modnorm.v1.SamplingService"},
    {"service": "modnorm.v1.JobService", "method": "FetchArtifact"},
)
"""Methods that gRPC may retry. Workers repeat their other calls."""

CHANNEL_OPTIONS: Options = (
    *channel_options(
        _IDEMPOTENT, most_bytes=MESSAGE_BYTES, throttling={"maxTokens": 10, "tokenRatio": 0.5}
    ),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    *FLOW,
)
"""Options of blocking and asynchronous channels."""


def open_service_channel(target: str, credentials: Credentials) -> grpc.aio.Channel:
    """Open a channel in the running event loop; it connects at the first call."""
    return open_async_channel(target, credentials, CHANNEL_OPTIONS)
