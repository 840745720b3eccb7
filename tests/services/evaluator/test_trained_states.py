"""Jobs around trained states, by the real engine."""

import torch

from modnorm.baselines.generator import Generator, propose
from modnorm.baselines.generator_file import read_generator
from modnorm.baselines.updates import es_step
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.lineage import Lineage, all_float32
from modnorm.services.evaluator.shutdown import Watchdog
from modnorm.wire.answer_sheets import unpack_answers
from tests.services.evaluator.run_job import run_job


def lineage_of(checkpoint: Checkpoint) -> Lineage:
    steps = (es_step((1, 2), (0.0, 1.0), 0.2), es_step((3, 4), (0.5, 0.25), 0.2))
    return Lineage(checkpoint.digest, "portable-v1", steps=steps)


def test_a_job_is_answered_at_its_trained_state_and_the_next_at_the_base(
    runner, aggregator, add_job, checkpoint
):
    lineage = lineage_of(checkpoint)
    aggregator.lineages["experiment"] = lineage
    states = {"base": "", "one": lineage.digests[1], "two": lineage.digest, "again": ""}
    for job_id, state in states.items():
        job = add_job(job_id)
        job.experiment_id = "experiment"
        job.descriptor.lineage_digest = state
        run_job(runner, job)
    assert not aggregator.failures
    found = {
        job_id: [answer.completion for answer in unpack_answers(report.answers)]
        for job_id, report in aggregator.reports.items()
    }
    assert found["again"] == found["base"] != found["two"]
    assert aggregator.calls["FetchLineage"] == 2
    reported = aggregator.reports["two"]
    assert reported.descriptor.lineage_digest == lineage.digest
    assert reported.normaliser == 0.0


def test_the_steps_of_a_lineage_are_signs_of_life(
    make_runner, aggregator, add_job, checkpoint, monkeypatch
):
    watchdog = Watchdog(60.0)
    runner, lineage, seen = make_runner(watchdog=watchdog), lineage_of(checkpoint), []
    aggregator.lineages["experiment"] = lineage
    take = CandidateWeights._apply_step

    def slow(*told):
        # Without the sign of life at this step the last one is an hour old.
        seen.append(watchdog._deadline)
        watchdog._deadline -= 3600.0
        take(*told)

    monkeypatch.setattr(CandidateWeights, "_apply_step", slow)
    job = add_job("a")
    job.experiment_id, job.descriptor.lineage_digest = "experiment", lineage.digest
    run_job(runner, job)
    assert len(seen) == 2
    assert seen[1] > seen[0]
    assert not aggregator.failures


def test_a_generator_proposes_the_coefficients_of_a_candidate(
    runner, aggregator, add_job, checkpoint
):
    layout = physical_layout(checkpoint.config)
    text = Generator(layout, seed=1).to_json({})
    digest = read_generator(text).digest
    lineage = lineage_of(checkpoint).until(0)
    aggregator.lineages["experiment"], aggregator.generators[digest] = lineage, text
    job = add_job("a")
    job.experiment_id, job.generator_digest = "experiment", digest
    job.descriptor.lineage_digest = lineage.digest
    run_job(runner, job)

    stored = CheckpointWeights(checkpoint)
    moments = []
    for tensor in layout:
        variance, mean = torch.var_mean(stored.read(tensor).float())
        moments.append((float(mean), float(variance)))
    raw, scale = propose(Generator.from_json(text, layout), moments, ())
    header = aggregator.reports["a"]
    assert header.normaliser == scale
    expected = all_float32([job.descriptor.radius * (scale * one) for one in raw])
    assert tuple(header.descriptor.coefficients) == expected

    rebuilt = add_job("b")
    rebuilt.experiment_id, rebuilt.generator_digest = "experiment", digest
    rebuilt.descriptor.CopyFrom(header.descriptor)
    rebuilt.descriptor.coefficients[0] *= 2
    run_job(runner, rebuilt)
    assert aggregator.reports["b"].descriptor == rebuilt.descriptor
