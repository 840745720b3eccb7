"""OpenTelemetry traces of calls and of jobs on the queue; imported only where they are wanted.

One trace leads from CreateExperiment over the publication of its jobs to their claims and
reports: the context goes with calls in gRPC metadata, and with job ids in the headers of Celery
messages. Jobs that the reconciler publishes again begin a trace of their own.

gRPC's own instrumentation is used as it is. Celery's ends the span of a publication only where the
task is known by the process that publishes, which here is never so; two signals do.
"""

from collections.abc import Mapping, MutableMapping
from contextlib import ExitStack
from typing import Protocol

from celery import signals
from opentelemetry import propagate
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


class Telemetry:
    """Traces all gRPC servers and channels made, and all messages sent, while it is on.

    Args:
        provider: Where spans go.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("modnorm")
        self._running: dict[str, ExitStack] = {}
        self._instrumentors: tuple[_Instrumentor, ...] = (
            GrpcAioInstrumentorServer(filter_=filters.negate(filters.health_check())),
            GrpcAioInstrumentorClient(),
            GrpcInstrumentorClient(),
        )

    def start(self) -> None:
        """Begin to trace."""
        for instrumentor in self._instrumentors:
            instrumentor.instrument(tracer_provider=self._provider)
        signals.before_task_publish.connect(self._publish, weak=False)
        signals.task_prerun.connect(self._begin, weak=False)
        signals.task_postrun.connect(self._end, weak=False)

    def stop(self) -> None:
        """Trace no more, and hand over the spans that are left."""
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
