"""Trace contexts of calls on `Work` streams, without an import of OpenTelemetry.

A stream lasts longer than any job, so each call carries its own W3C trace context:
`add_trace_context` writes it and `call_span` continues it. `services.common.telemetry` sets the
tracer if traces are exported.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from modnorm.v1.evaluation_pb2 import Call


class CallTracer(Protocol):
    """Traces calls on streams."""

    def inject(self, call: Call) -> None:
        """Write the current trace context into a call."""

    def span(self, service: str, method: str, call: Call) -> AbstractContextManager[object]:
        """Return the server span of a call, which continues the trace in the call."""


class _Tracers:
    """The tracer of this process; None if traces are off."""

    active: CallTracer | None = None


def trace_calls(tracer: CallTracer | None) -> None:
    """Set the tracer of calls on streams; None switches traces off."""
    _Tracers.active = tracer


def add_trace_context(call: Call) -> Call:
    """Write the current trace context into a call; return the call."""
    if _Tracers.active is not None:
        _Tracers.active.inject(call)
    return call


def call_span(service: str, method: str, call: Call) -> AbstractContextManager[object]:
    """Return the server span of a call, as a context."""
    if _Tracers.active is None:
        return nullcontext()
    return _Tracers.active.span(service, method, call)
