"""Settings of a job's engine."""

import pytest

from modnorm.engines import Drafts, load_engine
from modnorm.errors import DoesNotFitError
from modnorm.services.evaluator import model_cache
from modnorm.services.evaluator.model_cache import engine_settings
from modnorm.v1 import common_pb2, evaluation_pb2
from tests.services.evaluator.run_job import run_job


@pytest.mark.parametrize(
    ("vllm", "engine", "drafts"),
    [
        (True, {}, Drafts.POPULATION),
        (True, {"drafts": "auto"}, Drafts.POPULATION),
        (True, {"drafts": "none"}, Drafts.NONE),
        (True, {"numerics": "batch_invariant"}, Drafts.NONE),
        (False, {}, Drafts.NONE),
        (False, {"drafts": "population"}, Drafts.POPULATION),
    ],
)
def test_drafts_are_used_wherever_vllm_runs_with_fast_numerics(monkeypatch, vllm, engine, drafts):
    monkeypatch.setattr(model_cache, "is_vllm", lambda _: vllm)
    job = evaluation_pb2.Job(engine=common_pb2.EngineSpec(name="auto", **engine))
    assert engine_settings(job, 0.9).drafts is drafts


@pytest.mark.parametrize("asked", ["", "auto", "population"])
def test_an_engine_that_cannot_verify_drafts_starts_without_them(
    make_runner, aggregator, add_job, monkeypatch, asked
):
    monkeypatch.setattr(model_cache, "is_vllm", lambda _: True)
    tried = []

    def load(name, checkpoint, settings):
        tried.append(settings.drafts)
        if settings.drafts is Drafts.POPULATION:
            raise DoesNotFitError("there is no room for drafts", field="engine")
        return load_engine(name, checkpoint, settings)

    runner = make_runner(load)
    for job_id in "ab":
        job = add_job(job_id, max_tokens=8)
        job.engine.drafts = asked
        run_job(runner, job)
    if asked == "population":
        assert "room for drafts" in aggregator.failures["a"].reason
    else:
        assert tried == [Drafts.POPULATION, Drafts.NONE]
        assert set(aggregator.reports) == {"a", "b"}
