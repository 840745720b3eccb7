"""Iterative runs whose steps a generator proposes."""

import hashlib

import pytest

from modnorm.baselines.generator import Generator
from modnorm.baselines.updates import step_seed, zo_step
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import ConflictError, InvalidInputError
from modnorm.v1 import experiment_pb2

SUCCEEDED = experiment_pb2.EXPERIMENT_STATE_SUCCEEDED
FAILED = experiment_pb2.EXPERIMENT_STATE_FAILED


@pytest.fixture
def generator(tmp_path):
    """A generator of the bundled model, in a file."""
    layout = physical_layout(resolve_checkpoint("tiny-thicket").config)
    path = tmp_path / "generator.json"
    path.write_text(Generator(layout, seed=1).to_json({}))
    return path


@pytest.fixture
def zo_spec(iterative_spec, generator):
    """Return a spec of two updates that the generator proposes."""

    def make(**changes):
        chosen = {"iterative__updates": 2, "iterative__generator": str(generator)}
        return iterative_spec("mezo", method="zo_finetuner", **{**chosen, **changes})

    return make


@pytest.fixture
def normalising(sensitive):
    """Let a synthetic worker report the normaliser of its proposals."""

    def make(worker, normaliser):
        plain = sensitive(worker).report_of

        async def report_of(job):
            found = await plain(job)
            found.normaliser = normaliser if job.generator_digest else 0.0
            return found

        worker.report_of = report_of
        return worker

    return make


async def test_a_generator_that_was_edited_is_refused(start_lab, zo_spec, generator):
    async with start_lab() as lab:
        created = await lab.create(zo_spec())
        assert (await lab.create(zo_spec())).id == created.id
        layout = physical_layout(resolve_checkpoint("tiny-thicket").config)
        generator.write_text(Generator(layout, seed=2).to_json({}))
        async with lab.raises(ConflictError, "iterative.generator"):
            await lab.create(zo_spec())


async def test_both_sides_of_a_step_have_the_amplitudes_that_were_proposed(
    start_lab, zo_spec, normalising, generator
):
    async with start_lab() as lab:
        last = {"iterative__report": "last", "iterative__development": None}
        created = await lab.create(zo_spec(**last))
        await lab.finish(created.id, normalising(lab.worker(), 4.0))
        experiment = await lab.get(created.id)
        assert experiment.state == SUCCEEDED, experiment.error
        lineage = await lab.lineage(created.id)
        candidates = await lab.candidates(created.id)
    text = generator.read_text()
    assert experiment.provenance.generator_digest == hashlib.sha256(text.encode()).hexdigest()
    sides = [one for one in candidates if one.index >= 0]
    for update in range(2):
        plus, minus = sides[2 * update : 2 * update + 2]
        proposed = plus.descriptor.coefficients
        assert list(minus.descriptor.coefficients) == [-one for one in proposed]
        step = zo_step(
            step_seed(5, update),
            plus.selection_reward,
            minus.selection_reward,
            raw=[one / (0.001 * 4.0) for one in proposed],
            scale=4.0,
            epsilon=0.001,
            rate=0.5,
        )
        assert lineage.steps[update] == step


async def test_a_proposal_without_its_normaliser_is_refused(start_lab, zo_spec, sensitive):
    async with start_lab() as lab:
        await lab.create(zo_spec())
        worker = sensitive(lab.worker())
        while not (job := await worker.claim_next()).generator_digest:
            await worker.report(job)
        async with lab.raises(InvalidInputError, "normaliser"):
            await worker.report(job)


async def test_a_step_that_cannot_be_computed_ends_the_run(start_lab, zo_spec, normalising):
    async with start_lab() as lab:
        created = await lab.create(zo_spec())
        await lab.finish(created.id, normalising(lab.worker(), 5e-324))
        experiment = await lab.get(created.id)
        assert experiment.state == FAILED
        assert "cannot be computed" in experiment.error


async def test_a_model_that_does_not_fit_is_refused_before_anything_is_stored(
    start_lab, iterative_spec, zo_spec, generator
):
    same = {"source": "bundled:word-problems-selection", "limit": 5}
    generator.write_text(generator.read_text().replace("model.norm.weight", "model.other"))
    async with start_lab() as lab:
        async with lab.raises(InvalidInputError, "iterative.development"):
            await lab.create(iterative_spec("mezo", iterative__development=same))
        async with lab.raises(InvalidInputError, "iterative.generator"):
            await lab.create(zo_spec())
        assert not (await lab.list()).experiments
