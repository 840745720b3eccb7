"""Metrics and log lines of a worker."""

import threading
import uuid

import pytest
from prometheus_client import CollectorRegistry

from modnorm.engines import load_engine
from modnorm.errors import EngineError, StaleLeaseError
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.metrics import EvaluatorMetrics, GpuCollector
from modnorm.services.evaluator.worker import Worker
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.answer_sheets import unpack_answers
from tests.services.evaluator.run_job import run_job
from verification.labs.waiting import HANG_SECONDS


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def runner(make_runner, registry):
    return make_runner(metrics=EvaluatorMetrics(registry))


def outcomes(registry: CollectorRegistry) -> dict[str, float]:
    return {
        sample.labels["outcome"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "modnorm_evaluator_jobs_total" and sample.value
    }


def test_a_result_is_counted_and_timed(runner, registry, aggregator, add_job):
    run_job(runner, add_job())
    run_job(runner, "nothing")
    assert outcomes(registry) == {"reported": 1}
    tokens = sum(answer.tokens for answer in unpack_answers(aggregator.reports["a"].answers))
    assert registry.get_sample_value("modnorm_evaluator_tokens_total") == tokens
    assert registry.get_sample_value("modnorm_evaluator_model_loads_total") == 1
    assert registry.get_sample_value("modnorm_evaluator_busy") == 0


def test_failed_and_dropped_jobs_are_counted_separately(runner, registry, aggregator, add_job):
    run_job(runner, add_job("bad", engine="abacus"))
    run_job(runner, add_job("foreign", task="chess"))
    aggregator.errors["ReportJob"] = [StaleLeaseError("lost")]
    run_job(runner, add_job("stale"))
    assert outcomes(registry) == {"failed": 1, "unfit": 1, "dropped": 1}
    assert registry.get_sample_value("modnorm_evaluator_engine_restarts_total") == 1


def test_the_engine_stays_loaded_if_another_service_is_down(runner, registry, aggregator, add_job):
    run_job(runner, add_job("before"))
    aggregator.rows["0" * 64] = ["{}"]
    run_job(runner, add_job("gone", rows_digest="0" * 64))
    run_job(runner, add_job("after"))
    assert aggregator.failures["gone"].kind == messages.FAILURE_KIND_INFRASTRUCTURE
    assert outcomes(registry) == {"reported": 2, "failed": 1}
    assert registry.get_sample_value("modnorm_evaluator_model_loads_total") == 1
    assert registry.get_sample_value("modnorm_evaluator_engine_restarts_total") == 0


def test_every_log_line_of_a_job_names_it(runner, logged, aggregator, add_job):
    aggregator.errors["Heartbeat"] = [EngineError("the engine of the aggregator")]
    run_job(runner, add_job("a", candidate=4))
    ours = [line for line in logged() if str(line["logger"]).startswith("modnorm.services.")]
    assert {"loading a model", "reported"} <= {str(line["event"]) for line in ours}
    named = {
        (line.get("experiment"), line.get("job"), line.get("candidate"), line.get("split"))
        for line in ours
    }
    assert named == {("e", "a", 4, "selection")}


def test_jobs_of_a_worker_that_does_not_stop_are_released(
    target, aggregator, add_job, monkeypatch
):
    monkeypatch.setattr("modnorm.services.evaluator.worker.JOIN_SECONDS", 0.1)
    loading, loaded = threading.Event(), threading.Event()

    def load(*told):
        loading.set()
        assert loaded.wait(HANG_SECONDS)
        return load_engine(*told)

    settings = EvaluatorSettings(
        broker_url=f"memory://{uuid.uuid4().hex}", aggregator_target=target, stop_grace=0.0
    )
    monkeypatch.setattr("modnorm.services.evaluator.model_cache.load_engine", load)
    worker = Worker(settings)
    thread = threading.Thread(target=worker.run)
    add_job()
    thread.start()
    assert loading.wait(HANG_SECONDS)
    worker.stop()
    assert aggregator.failures["a"].kind == messages.FAILURE_KIND_RELEASED
    loaded.set()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()


def test_readable_gpu_metrics_are_exported(registry, monkeypatch):
    def memory_used(device):
        if device:
            raise RuntimeError("NVML does not know this one")
        return 3 * 2**30

    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.device_memory_used", memory_used)
    monkeypatch.setattr("torch.cuda.utilization", lambda _device: 50)
    registry.register(GpuCollector())

    def value(name, device):
        return registry.get_sample_value(name, {"device": device})

    assert value("modnorm_gpu_memory_used_bytes", "0") == 3 * 2**30
    assert value("modnorm_gpu_memory_used_bytes", "1") is None
    assert value("modnorm_gpu_utilization_ratio", "1") == 0.5
