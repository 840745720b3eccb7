"""OpenTelemetry traces of calls and of jobs on the queue; imported only where they are wanted.

One trace leads from CreateExperiment over the publication of its jobs to their claims and
reports. The context goes with calls in gRPC metadata, with calls on a `Work` stream in the calls
themselves, and with job ids in the headers of Celery messages. Jobs that the reconciler publishes
again begin a trace of their own.

gRPC's own instrumentation is used as it is. Celery's ends the span of a publication only where the
task is known by the process that publishes, which here is never so; two signals do.
"""

from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from celery import signals
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.grpc import (
    GrpcAioInstrumentorClient,
    GrpcAioInstrumentorServer,
    GrpcInstrumentorClient,
    filters,
)
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from modnorm.v1.evaluation_pb2 import Call
from services.common.tracing import trace_calls


class _Request(Protocol):
    """A message as a task sees it: its headers are attributes."""

    @property
    def id(self) -> str: ...


class _Task(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def request(self) -> _Request: ...


class _Instrumentor(Protocol):
    def instrument(self, *, tracer_provider: TracerProvider) -> object: ...

    def uninstrument(self) -> object: ...


class _CallTracer:
    """Spans of calls on `Work` streams, by the W3C trace context that each call carries.

    Args:
        provider: Where spans go.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("modnorm")
        self._propagator = TraceContextTextMapPropagator()

    def inject(self, call: Call) -> None:
        """Write the current trace context into a call."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        call.traceparent = carrier.get("traceparent", "")
        call.tracestate = carrier.get("tracestate", "")

    def span(self, service: str, method: str, call: Call) -> AbstractContextManager[object]:
        """Return the server span of a call, which continues the trace in the call."""
        carrier = {"traceparent": call.traceparent, "tracestate": call.tracestate}
        return self._tracer.start_as_current_span(
            f"/{service}/{method}",
            self._propagator.extract(carrier, Context()),
            SpanKind.SERVER,
            {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method},
        )


class Telemetry:
    """Traces all gRPC servers and channels made, and all messages sent, while it is on.

    Args:
        provider: Where spans go.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("modnorm")
        self._running: dict[str, ExitStack] = {}
        # A stream lasts as long as its worker; the calls on it have spans of their own.
        streams = filters.method_name("Work")
        untraced = filters.any_of(filters.health_check(), streams)
        self._instrumentors: tuple[_Instrumentor, ...] = (
            GrpcAioInstrumentorServer(filter_=filters.negate(untraced)),
            GrpcAioInstrumentorClient(),
            GrpcInstrumentorClient(filter_=filters.negate(streams)),
        )

    def start(self) -> None:
        """Begin to trace."""
        for instrumentor in self._instrumentors:
            instrumentor.instrument(tracer_provider=self._provider)
        trace_calls(_CallTracer(self._provider))
        signals.before_task_publish.connect(self._publish, weak=False)
        signals.task_prerun.connect(self._begin, weak=False)
        signals.task_postrun.connect(self._end, weak=False)

    def stop(self) -> None:
        """Trace no more, and hand over the spans that are left."""
        trace_calls(None)
        signals.before_task_publish.disconnect(self._publish)
        signals.task_prerun.disconnect(self._begin)
        signals.task_postrun.disconnect(self._end)
        for instrumentor in self._instrumentors:
            instrumentor.uninstrument()
        self._provider.shutdown()

    def _publish(self, sender: str, headers: MutableMapping[str, object], **_: object) -> None:
        with self._tracer.start_as_current_span(f"publish {sender}", kind=SpanKind.PRODUCER):
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            headers.update(carrier)

    def _begin(self, task_id: str, task: _Task, **_: object) -> None:
        context = propagate.extract(_carrier(task.request))
        stack = self._running[task_id] = ExitStack()
        stack.enter_context(
            self._tracer.start_as_current_span(task.name, context, SpanKind.CONSUMER)
        )

    def _end(self, task_id: str, **_: object) -> None:
        stack = self._running.pop(task_id, None)
        if stack is not None:
            stack.close()


def _carrier(request: _Request) -> Mapping[str, str]:
    """Return the headers of a message that say which trace it belongs to."""
    fields = propagate.get_global_textmap().fields
    found = {field: getattr(request, field, None) for field in fields}
    return {field: value for field, value in found.items() if isinstance(value, str)}


def otlp(service: str) -> Telemetry:
    """Return what sends traces to the collector that the OTEL_* variables name.

    Args:
        service: Name of the service; OTEL_SERVICE_NAME goes first.
    """
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Telemetry(provider)
