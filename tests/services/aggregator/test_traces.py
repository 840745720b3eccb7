"""One trace from the creation of an experiment over the queue to the reports of its jobs."""

import asyncio
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.common.settings import EvaluatorSettings
from services.common.telemetry import Telemetry
from services.evaluator.celery_worker import Worker

JOBS = "/modnorm.v1.JobService/"
CREATE = "/modnorm.v1.ExperimentService/CreateExperiment"
PUBLISH = "publish modnorm.evaluate"


@pytest.fixture
def exporter():
    """Collect all spans of a test in a list."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(provider)
    telemetry.start()
    yield exporter
    telemetry.stop()


@pytest.fixture
def spans(exporter, start_lab, spec, request):
    """All spans of an experiment that a real worker evaluated."""

    async def scenario():
        async with start_lab() as lab:
            worker = Worker(
                EvaluatorSettings(
                    aggregator_target=f"127.0.0.1:{lab.aggregator.port}",
                    broker_url=lab.settings.broker_url,
                    stop_grace=0.0,
                )
            )
            # What other labs left in this process's broker was published in traces of theirs.
            await asyncio.to_thread(lab.aggregator._dispatcher._app.control.purge)
            thread = threading.Thread(target=worker.run)
            thread.start()
            created = await lab.create(spec(population__size=3, population__prefixes=[3]))
            await lab.finish(created.id)
            await asyncio.to_thread(worker.stop)
            await asyncio.to_thread(thread.join, 30)

    asyncio.run(scenario())
    return exporter.get_finished_spans()


def ancestors(span, spans):
    by_id = {one.context.span_id: one for one in spans}
    while span.parent is not None:
        span = by_id[span.parent.span_id]
        yield span.name


def test_reports_descend_from_the_creation_over_the_queue(spans):
    served = [span for span in spans if span.kind.name == "SERVER"]
    (create,) = [span for span in served if span.name == CREATE]
    for method in ("ClaimJob", "ReportJob"):
        found = [span for span in served if span.name == JOBS + method]
        assert len(found) >= 4 + 2
        for span in found:
            assert span.context.trace_id == create.context.trace_id
            above = list(ancestors(span, spans))
            assert above.index("modnorm.evaluate") < above.index(PUBLISH) < above.index(CREATE)


def test_a_publication_of_the_second_phase_descends_from_a_report(spans):
    published = [span for span in spans if span.name == PUBLISH]
    after_reports = [
        span for span in published if JOBS + "ReportJob" in set(ancestors(span, spans))
    ]
    assert len(published) > len(after_reports) >= 2
