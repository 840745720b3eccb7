"""OpenTelemetry traces of calls and of jobs on the queue; imported only if traces are exported.

One trace leads from CreateExperiment over the publication of its jobs to their claims and
reports. gRPC metadata carries the context of a call, and each call on a `Work` stream its own. The
headers of a Celery message carry the context of a job. Jobs that the reconciler publishes again
begin a new trace.

Calls use gRPC's own instrumentation. Celery's would leave spans of publications open, because the
publishing process does not register the task; three signals replace it.
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
    """Celery's request of a running task; the headers of its message are attributes."""

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
    """Spans of calls on `Work` streams, from the W3C trace context in each call."""

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
    """Traces the gRPC servers, channels and Celery messages created between start and stop."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("modnorm")
        self._running: dict[str, ExitStack] = {}
        # A stream lasts as long as its worker, and its calls have their own spans.
        streams = filters.method_name("Work")
        untraced = filters.any_of(filters.health_check(), streams)
        self._instrumentors: tuple[_Instrumentor, ...] = (
            GrpcAioInstrumentorServer(filter_=filters.negate(untraced)),
            GrpcAioInstrumentorClient(),
            GrpcInstrumentorClient(filter_=filters.negate(streams)),
        )

    def start(self) -> None:
        """Switch traces on."""
        for instrumentor in self._instrumentors:
            instrumentor.instrument(tracer_provider=self._provider)
        trace_calls(_CallTracer(self._provider))
        signals.before_task_publish.connect(self._publish, weak=False)
        signals.task_prerun.connect(self._begin, weak=False)
        signals.task_postrun.connect(self._end, weak=False)

    def stop(self) -> None:
        """Switch traces off and export the remaining spans."""
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
    """Return the trace context in the headers of a message."""
    fields = propagate.get_global_textmap().fields
    headers = {field: getattr(request, field, None) for field in fields}
    return {field: value for field, value in headers.items() if isinstance(value, str)}


def otlp(service: str) -> Telemetry:
    """Return telemetry that exports to the collector of the OTEL_* variables."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Telemetry(provider)
