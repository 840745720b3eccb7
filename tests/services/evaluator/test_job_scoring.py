"""Loading of a job's engine, and the replay of its canary."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from modnorm.engines import (
    Completion,
    Drafts,
    Engine,
    EngineSettings,
    GenerationLimits,
    load_engine,
)
from modnorm.errors import DoesNotFitError, PreconditionError
from modnorm.services.evaluator import model_cache
from modnorm.services.evaluator.model_cache import Prompts, engine_settings
from modnorm.v1 import common_pb2, evaluation_pb2
from modnorm.v1 import evaluation_pb2 as messages
from tests.delegating import Delegating
from tests.services.evaluator.run_job import run_job


def test_the_engine_is_loaded_with_the_settings_of_the_spec_and_of_the_worker(
    make_runner, aggregator, add_job
):
    loaded = []

    def load(name, checkpoint, settings):
        loaded.append(settings)
        return load_engine(name, checkpoint, replace(settings, tensor_parallel_size=1))

    runner = make_runner(load, gpu_memory_utilization=0.3)
    plain = common_pb2.EngineSpec()
    asked = common_pb2.EngineSpec(max_model_len=300, max_num_seqs=7, tensor_parallel_size=2)
    for job_id, spec in (("a", plain), ("b", asked), ("c", asked)):
        job = add_job(job_id)
        job.engine.MergeFrom(spec)
        run_job(runner, job)
    assert set(aggregator.reports) == {"a", "b", "c"}
    assert loaded == [
        EngineSettings(gpu_memory_utilization=0.3, worker_process=False),
        EngineSettings(
            300,
            gpu_memory_utilization=0.3,
            tensor_parallel_size=2,
            max_num_seqs=7,
            worker_process=False,
        ),
    ]


def test_numerics_that_no_worker_here_offers_end_the_experiment_with_a_reason(
    runner, aggregator, add_job
):
    job = add_job()
    job.engine.numerics = "batch_invariant"
    run_job(runner, job)
    assert aggregator.failures["a"].kind == messages.FAILURE_KIND_FATAL
    assert "numerics" in aggregator.failures["a"].reason


def test_a_process_that_cannot_load_the_engine_releases_the_job_and_ends(
    make_runner, aggregator, add_job
):
    def load(*_):
        raise PreconditionError("this process runs vLLM with fast numerics")

    runner = make_runner(load)
    run_job(runner, add_job())
    assert aggregator.failures["a"].kind == messages.FAILURE_KIND_RELEASED
    assert runner.scorer.needs_new_process


@pytest.mark.parametrize("may_make_room", [True, False])
def test_a_model_larger_than_its_share_ends_the_worker_or_the_experiment(
    make_runner, aggregator, add_job, may_make_room
):
    def load(*_):
        raise DoesNotFitError("two copies of 3.1 GiB", remedy="lower MODNORM_ENGINES_PER_GPU")

    runner = make_runner(load, may_make_room=may_make_room)
    run_job(runner, add_job())
    expected = messages.FAILURE_KIND_RELEASED if may_make_room else messages.FAILURE_KIND_FATAL
    failure = aggregator.failures["a"]
    assert failure.kind == expected
    assert "ENGINES_PER_GPU" in failure.reason + failure.remedy
    assert runner.scorer.makes_room == may_make_room


class Flipping(Delegating):
    """An engine that changes one token of the base's answers, like a faulty GPU."""

    def generate(
        self, prompts: Prompts, limits: GenerationLimits, poll: Callable[[], None]
    ) -> Iterator[Completion]:
        for done in self._inner.generate(prompts, limits, poll=poll):
            yield replace(done, text=done.text + "!") if len(prompts) == 4 else done


def test_the_base_is_replayed_once_and_a_faulty_engine_shows(make_runner, aggregator, add_job):
    def load(*told):
        return Flipping(load_engine(*told))

    def canaries(*job_ids):
        found = [aggregator.reports[job_id].environment for job_id in job_ids]
        return [(one["canary"], one["canary_of"]) for one in found]

    for made, job_ids in ((load_engine, "ab"), (load_engine, "c"), (load, "d")):
        runner = make_runner(made)
        for job_id in job_ids:
            run_job(runner, add_job(job_id))
        runner.close()
    first, second, third, faulty = canaries(*"abcd")
    assert first == second == third
    assert faulty[1] == first[1]
    assert faulty[0] != first[0]
    assert aggregator.reports["d"].answers == aggregator.reports["a"].answers


class Drafting(Delegating):
    """An engine that answers prompts otherwise the second time, as drafts may round otherwise."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._seen: set[str] = set()

    def generate(
        self, prompts: Prompts, limits: GenerationLimits, poll: Callable[[], None]
    ) -> Iterator[Completion]:
        again, self._seen = str(prompts) in self._seen, self._seen | {str(prompts)}
        for done in self._inner.generate(prompts, limits, poll=poll):
            yield replace(done, text=done.text + "!") if again else done


def test_equal_prompts_of_other_rows_are_not_replayed(make_runner, aggregator, add_job):
    def load(*told):
        return Drafting(load_engine(*told))

    runner, first = make_runner(load), add_job("a")
    fewer = aggregator.keep_rows(aggregator.rows[first.rows_digest][:-1])
    for job in (first, add_job("b", rows_digest=fewer)):
        run_job(runner, job)
    runner.close()
    canaries = [aggregator.reports[job_id].environment["canary"] for job_id in "ab"]
    assert canaries[0] == canaries[1]


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
