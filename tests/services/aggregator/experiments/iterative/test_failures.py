"""Candidates of iterative runs that fail."""

import pytest

from modnorm.v1 import evaluation_pb2, experiment_pb2

SUCCEEDED = experiment_pb2.EXPERIMENT_STATE_SUCCEEDED
FAILED = experiment_pb2.EXPERIMENT_STATE_FAILED


@pytest.mark.parametrize(
    ("method", "allowed", "state", "said"),
    [
        ("es", 1, SUCCEEDED, ""),
        ("es", 0, FAILED, "1 candidates failed"),
        ("mezo", 1, FAILED, "a side of the step could not be evaluated"),
    ],
)
async def test_a_failed_candidate_has_no_part_in_a_step(
    start_lab, iterative_spec, sensitive, worked, method, allowed, state, said
):
    message = iterative_spec(method, failures={"max_failed_candidates": allowed})
    async with start_lab() as lab:
        created = await lab.create(message)
        worker = sensitive(lab.worker())
        while (job := await worker.claim_next()).candidate != 0:
            await worker.report(job)
        await lab.fail(job.lease, "CANDIDATE", "not finite")
        async with worked(lab):
            await lab.finish(created.id)
        experiment = await lab.get(created.id)
        assert experiment.state == state
        assert said in experiment.error
        lineage = await lab.lineage(created.id)
    if state == SUCCEEDED:
        assert lineage.steps[0].scores[0] is None
        assert lineage.steps[0].coefficients[0] == 0.0


@pytest.mark.parametrize(("allowed", "state"), [(2, SUCCEEDED), (1, FAILED)])
async def test_the_failed_candidates_of_all_updates_count_together(
    start_lab, iterative_spec, sensitive, worked, allowed, state
):
    message = iterative_spec("es", failures={"max_failed_candidates": allowed})
    unlucky = {1, 5}
    async with start_lab() as lab:
        created = await lab.create(message)
        worker = sensitive(lab.worker())
        while unlucky:
            job = await worker.claim_next()
            if job.candidate not in unlucky or job.split != evaluation_pb2.SPLIT_SELECTION:
                await worker.report(job)
                continue
            unlucky.remove(job.candidate)
            await lab.fail(job.lease, "CANDIDATE", "NaN")
        async with worked(lab):
            await lab.finish(created.id)
        experiment = await lab.get(created.id)
    assert experiment.state == state
    assert ("2 candidates failed, 1 may" in experiment.error) is (state == FAILED)
