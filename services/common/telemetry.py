"""OpenTelemetry traces of calls, by gRPC's own instrumentation; imported only if exported."""

from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def instrumented(provider: TracerProvider) -> Iterator[None]:
    """Trace the gRPC servers and channels that are created inside the context."""
    instrumentors = (
        GrpcAioInstrumentorServer(filter_=filters.negate(filters.health_check())),
        GrpcAioInstrumentorClient(),
        GrpcInstrumentorClient(),
    )
    for instrumentor in instrumentors:
        instrumentor.instrument(tracer_provider=provider)
    try:
        yield
    finally:
        for instrumentor in instrumentors:
            instrumentor.uninstrument()
        provider.shutdown()


def exporting_provider(service: str) -> TracerProvider:
    """Return a provider that exports to the collector of the OTEL_* variables."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
