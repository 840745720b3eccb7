"""Traces, where the environment asks for them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from modnorm.errors import PreconditionError
from services.common.settings import TracingSettings


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


def calls_are_traced() -> bool:
    """Tell whether each call over the channels that this process opens now is a span."""
    instrumentation = sys.modules.get("opentelemetry.instrumentation.grpc")
    if instrumentation is None:
        return False
    return bool(instrumentation.GrpcInstrumentorClient().is_instrumented_by_opentelemetry)
