"""Prometheus metrics: the HTTP server of a process, and metrics of gRPC calls.

Each process creates one `CollectorRegistry` and passes it on. No label holds an id, so the number
of time series does not grow with experiments, jobs or workers.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server

from modnorm.errors import UnavailableError
from modnorm.wire.connection import split_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CALL_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
WORK_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""Upper bounds in seconds for the work of a model."""

_CODES: Mapping[int, str] = {code.value[0]: code.name for code in grpc.StatusCode if code.value[0]}
_REMEDY = "set MODNORM_METRICS_ADDRESS to a free HOST:PORT, or leave it empty"


@contextmanager
def exposed(address: str, registry: CollectorRegistry) -> Iterator[int]:
    """Answer `GET /metrics` inside the context; yield the port, or 0 if metrics are off."""
    if not address:
        yield 0
        return
    host, port = split_address(address)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {address}: {error}", field="MODNORM_METRICS_ADDRESS", remedy=_REMEDY
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class CallMetrics:
    """Counts and times the calls of a server.

    Unknown methods are not counted, since callers choose their names.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "modnorm_grpc_calls",
            "Calls that ended, by method and status code.",
            ("service", "method", "code"),
            registry=registry,
        )
        self._seconds = Histogram(
            "modnorm_grpc_call_seconds",
            "Time from the first byte of a call to its end; streams may last for days.",
            ("service", "method"),
            buckets=CALL_BUCKETS,
            registry=registry,
        )
        # Stored, since the lookup of a time series by labels costs more than its update.
        self._calls_of = cache(self._calls.labels)
        self._seconds_of = cache(self._seconds.labels)

    def ended(self, service: str, method: str, code: str, seconds: float) -> None:
        self._seconds_of(service, method).observe(seconds)
        self._calls_of(service, method, code).inc()


def code_name(code: grpc.StatusCode | int | None) -> str:
    """Return the name of the status that a call was aborted with."""
    return code.name if isinstance(code, grpc.StatusCode) else _CODES.get(code or 0, "UNKNOWN")
