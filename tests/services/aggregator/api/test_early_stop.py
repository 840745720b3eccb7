"""Early stop over the wire: thresholds, reports and results."""

import pytest

from modnorm.errors import InvalidInputError
from modnorm.v1 import evaluation_pb2, experiment_pb2
from verification.labs.waiting import HANG_SECONDS

THRESHOLD = evaluation_pb2.Threshold(reward=1.0, index=0)


async def report_right(worker, job):
    """Report a job with the full reward for each answer."""
    header, batch = await worker.parts(job)
    for answer in batch.answers.answers:
        answer.reward = 1.0
    await worker.jobs.ReportJob(iter([header, batch]), timeout=HANG_SECONDS)


async def beat(lab, job, **named):
    return await lab.heartbeat(job.lease, **named)


@pytest.mark.parametrize("statistics", ["experts", "full"])
async def test_an_excluded_candidate_is_stopped_unless_statistics_are_full(
    start_lab, spec, statistics
):
    async with start_lab() as lab:
        changes = {"population__ensemble_sizes": [1], "population__statistics": statistics}
        created = await lab.create(spec(**changes))
        worker = lab.worker()
        for _ in range(2):  # the base and the first candidate
            await report_right(worker, await worker.claim_next())
        job = await worker.claim_next()
        told = await beat(lab, job, experiment_id=created.id, candidate=job.candidate)
        assert not (await beat(lab, job)).HasField("threshold")
        await (stops if statistics == "experts" else goes_on)(lab, worker, job, told)
        async with lab.working(worker):
            await lab.finish(created.id)
        ended = await lab.get(created.id)
        assert [list(one.experts) for one in ended.ensembles] == [[0], [0]]


async def stops(lab, worker, job, told):
    assert (job.threshold, told.threshold) == (THRESHOLD, THRESHOLD)
    header, _ = await worker.parts(job)
    header.header.stopped = True
    await worker.jobs.ReportJob(iter([header]), timeout=HANG_SECONDS)
    found = (await lab.candidates(job.experiment_id))[job.candidate + 1]
    assert found.state == experiment_pb2.CANDIDATE_STATE_STOPPED
    assert (found.reward_lower, found.reward_upper) == (0.0, 1.0)
    assert not found.HasField("selection_reward")
    assert (await lab.get(job.experiment_id)).progress.candidates_stopped == 1
    assert lab.aggregator._registry.get_sample_value("modnorm_candidates_stopped_total") == 1


async def goes_on(lab, worker, job, told):
    assert not job.HasField("threshold")
    assert not told.HasField("threshold")
    header, _ = await worker.parts(job)
    header.header.stopped = True
    async with lab.raises(InvalidInputError, "header.stopped"):
        await worker.jobs.ReportJob(iter([header]), timeout=HANG_SECONDS)
    await worker.report(job)
