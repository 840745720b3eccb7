"""Settings of a job's engine."""

import pytest

from modnorm.engines import Drafts
from modnorm.services.evaluator import model_cache
from modnorm.services.evaluator.model_cache import engine_settings
from modnorm.v1 import common_pb2, evaluation_pb2


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
