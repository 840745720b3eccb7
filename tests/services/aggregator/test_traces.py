"""The spans of a creation: one trace over the aggregator and the services that it calls."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from modnorm.services.common.telemetry import instrumented


@pytest.fixture
def exporter():
    """Collect all spans of a test in a list."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with instrumented(provider):
        yield exporter


async def test_a_creation_and_its_call_of_the_sampler_are_one_trace(exporter, start_lab, spec):
    async with start_lab() as lab:
        await lab.create(spec())
    served = {
        span.name: span for span in exporter.get_finished_spans() if span.kind.name == "SERVER"
    }
    create = served["/modnorm.v1.ExperimentService/CreateExperiment"]
    inspect = served["/modnorm.v1.SamplingService/InspectModel"]
    assert create.context.trace_id == inspect.context.trace_id
