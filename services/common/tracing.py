"""Traces, where the environment asks for them.

A call on a `Work` stream carries its own W3C trace context, since the stream lasts longer than any
job: `add_trace_context` writes it and `call_span` continues it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from modnorm.errors import PreconditionError
from modnorm.v1.evaluation_pb2 import Call
from services.common.settings import TracingSettings


class CallTracer(Protocol):
    """Traces calls on streams."""

    def inject(self, call: Call) -> None:
        """Write the current trace context into a call."""

    def span(self, service: str, method: str, call: Call) -> AbstractContextManager[object]:
        """Return the server span of a call, which continues the trace in the call."""


class _Tracers:
    """The tracer of calls in this process; None while nothing is traced."""

    active: CallTracer | None = None


def trace_calls(tracer: CallTracer | None) -> None:
    """Trace calls on streams from now on; None stops it."""
    _Tracers.active = tracer


def add_trace_context(call: Call) -> Call:
    """Write the current trace context into a call, and return the call."""
    if _Tracers.active is not None:
        _Tracers.active.inject(call)
    return call


def call_span(service: str, method: str, call: Call) -> AbstractContextManager[object]:
    """Return the span in which a call is answered."""
    if _Tracers.active is None:
        return nullcontext()
    return _Tracers.active.span(service, method, call)


@contextmanager
def traced(settings: TracingSettings, service: str) -> Iterator[bool]:
    """Trace calls and jobs as long as the context lasts; yield whether it does.

    Args:
        settings: Where traces go; nothing is traced, nor imported for it, without an endpoint.
        service: Name that spans carry.

    Raises:
        PreconditionError: traces are wanted, and OpenTelemetry is not installed.
    """
    if not settings.wanted:
        yield False
        return
    try:
        from services.common.telemetry import otlp  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise PreconditionError(
            f"traces are wanted, and {error.name} is not installed",
            field="OTEL_EXPORTER_OTLP_ENDPOINT",
            remedy="install modnorm[telemetry], or unset it",
        ) from error
    telemetry = otlp(service)
    telemetry.start()
    try:
        yield True
    finally:
        telemetry.stop()
