"""OpenTelemetry traces of calls, by gRPC's own instrumentation; imported only if exported."""

from typing import Protocol

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


class _Instrumentor(Protocol):
    def instrument(self, *, tracer_provider: TracerProvider) -> object: ...

    def uninstrument(self) -> object: ...


class Telemetry:
    """Traces the gRPC servers and channels created between start and stop."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._instrumentors: tuple[_Instrumentor, ...] = (
            GrpcAioInstrumentorServer(filter_=filters.negate(filters.health_check())),
            GrpcAioInstrumentorClient(),
            GrpcInstrumentorClient(),
        )

    def start(self) -> None:
        """Switch traces on."""
        for instrumentor in self._instrumentors:
            instrumentor.instrument(tracer_provider=self._provider)

    def stop(self) -> None:
        """Switch traces off and export the remaining spans."""
        for instrumentor in self._instrumentors:
            instrumentor.uninstrument()
        self._provider.shutdown()


def otlp(service: str) -> Telemetry:
    """Return telemetry that exports to the collector of the OTEL_* variables."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Telemetry(provider)
