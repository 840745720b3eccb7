"""Early stop over the wire: thresholds, reports and results."""

import pytest

from modnorm.errors import InvalidInputError
from modnorm.search.stopping import Interval
from modnorm.v1 import evaluation_pb2
from verification.labs.waiting import HANG_SECONDS

THRESHOLD = evaluation_pb2.Threshold(reward=1.0, index=0)


async def report_right(worker, job):
    """Report a job with the full reward for each answer."""
    report = await worker.report_of(job)
    for answer in report.answers:
        answer.reward = 1.0
    await worker.jobs.ReportJob(report, timeout=HANG_SECONDS)


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
        told = await lab.heartbeat(job.lease)
        await (stops if statistics == "experts" else goes_on)(lab, worker, job, told)
        async with lab.working(worker):
            await lab.finish(created.id)
        ended = await lab.get(created.id)
        assert [list(one.experts) for one in ended.ensembles] == [[0], [0]]


async def stops(lab, worker, job, told):
    assert (job.threshold, told.threshold) == (THRESHOLD, THRESHOLD)
    report = await worker.report_of(job)
    report.stopped = True
    report.ClearField("answers")
    await worker.jobs.ReportJob(report, timeout=HANG_SECONDS)
    found = (await lab.candidates(job.experiment_id))[job.candidate + 1]
    assert found.state == "stopped"
    assert found.stopped == Interval(0.0, 1.0)
    assert found.selection_reward is None
    assert (await lab.get(job.experiment_id)).progress.candidates_stopped == 1
    assert lab.aggregator._registry.get_sample_value("modnorm_candidates_stopped_total") == 1


async def goes_on(lab, worker, job, told):
    assert not job.HasField("threshold")
    assert not told.HasField("threshold")
    report = await worker.report_of(job)
    report.stopped = True
    report.ClearField("answers")
    async with lab.raises(InvalidInputError, "stopped"):
        await worker.jobs.ReportJob(report, timeout=HANG_SECONDS)
    await worker.report(job)
