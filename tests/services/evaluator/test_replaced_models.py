"""Jobs of several models of one architecture: the loaded engine takes the weights of each."""

from typing import cast

import pytest

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.checkpoint.writing import write_checkpoint
from modnorm.engines import Engine, EngineSettings, load_engine
from modnorm.errors import EngineError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.wire.conversions import descriptor_to_proto
from tests.delegating import Delegating
from tests.services.evaluator.run_job import run_job


@pytest.fixture(scope="module")
def relative(checkpoint, tmp_path_factory):
    """The bundled model with other weights."""
    stored = CheckpointWeights(checkpoint)
    weights = {tensor.name: stored.read(tensor) * 1.0625 for tensor in stored.layout}
    directory = tmp_path_factory.mktemp("relative") / "model"
    write_checkpoint(stored, weights, {}, directory)
    return resolve_checkpoint(str(directory))


@pytest.fixture
def add_relative(aggregator, add_job, relative):
    def add(job_id):
        scale_map = build_scale_map("randopt", relative)
        aggregator.scale_maps[scale_map.digest] = scale_map.to_json()
        job = add_job(job_id, model_digest=relative.digest, max_tokens=32)
        job.model.name = str(relative.directory)
        descriptor = Descriptor("portable-v1", 3, "randopt", 0.005, scale_map.digest)
        job.descriptor.CopyFrom(descriptor_to_proto(descriptor))
        return job

    return add


class Refusing(Delegating):
    """An engine whose weights cannot be read."""

    def replace_model(self, _: Checkpoint) -> None:
        raise EngineError("a disk failed")


class Loads:
    """Loads engines and counts them; the first may fail to replace its model."""

    def __init__(self, *, first_refuses: bool = False) -> None:
        self.count = 0
        self._first_refuses = first_refuses

    def load(self, name: str, checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
        self.count += 1
        engine = load_engine(name, checkpoint, settings)
        refuses = self._first_refuses and self.count == 1
        return cast("Engine", Refusing(engine)) if refuses else engine


def test_one_engine_answers_for_several_models(
    make_runner, aggregator, add_job, add_relative, relative
):
    loads, roots = Loads(), (relative.directory.parent,)
    runner = make_runner(loads.load, model_roots=roots)
    for job_id, add in (("a", add_job), ("b", add_relative), ("c", add_job)):
        run_job(runner, add(job_id))
    assert loads.count == 1
    run_job(make_runner(model_roots=roots), add_relative("d"))
    reports = aggregator.reports
    assert reports["a"].answers == reports["c"].answers != reports["b"].answers
    assert reports["b"].answers == reports["d"].answers
    assert reports["b"].environment == reports["d"].environment
    assert reports["a"].environment["canary"] != reports["b"].environment["canary"]


def test_an_engine_that_cannot_take_a_model_is_loaded_again(
    make_runner, aggregator, add_job, add_relative, relative
):
    loads = Loads(first_refuses=True)
    runner = make_runner(loads.load, model_roots=(relative.directory.parent,))
    run_job(runner, add_job("a", max_tokens=32))
    run_job(runner, add_relative("b"))
    assert loads.count == 2
    assert not aggregator.failures
    assert set(aggregator.reports) == {"a", "b"}
