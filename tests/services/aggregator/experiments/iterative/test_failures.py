"""Candidates of iterative runs that fail."""

import pytest

from modnorm.v1 import evaluation_pb2, experiment_pb2

SUCCEEDED = experiment_pb2.EXPERIMENT_STATE_SUCCEEDED
FAILED = experiment_pb2.EXPERIMENT_STATE_FAILED


@pytest.mark.parametrize(
    ("method", "unlucky", "allowed", "state", "said"),
    [
        ("es", {0}, 1, SUCCEEDED, ""),
        ("es", {0}, 0, FAILED, "1 candidates failed"),
        ("es", {1, 5}, 2, SUCCEEDED, ""),
        ("es", {1, 5}, 1, FAILED, "2 candidates failed, 1 may"),
        ("mezo", {0}, 1, FAILED, "a side of the step could not be evaluated"),
    ],
)
async def test_failed_candidates_have_no_part_in_a_step_and_count_together(
    start_lab, iterative_spec, sensitive, worked, method, unlucky, allowed, state, said
):
    message, left = iterative_spec(method, failures={"max_failed_candidates": allowed}), {*unlucky}
    async with start_lab() as lab:
        created = await lab.create(message)
        worker = sensitive(lab.worker())
        while left:
            job = await worker.claim_next()
            if job.candidate not in left or job.split != evaluation_pb2.SPLIT_SELECTION:
                await worker.report(job)
                continue
            left.remove(job.candidate)
            await lab.fail(job.lease, "CANDIDATE", "not finite")
        async with worked(lab):
            await lab.finish(created.id)
        experiment = await lab.get(created.id)
        assert experiment.state == state
        assert said in experiment.error
        assert bool(experiment.error) is (state == FAILED)
        lineage = await lab.lineage(created.id)
    for index in unlucky if state == SUCCEEDED else ():
        step = lineage.steps[index // 3]
        assert (step.scores[index % 3], step.coefficients[index % 3]) == (None, 0.0)
