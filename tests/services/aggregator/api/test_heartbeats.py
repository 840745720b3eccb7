"""Heartbeats of many leases in one call."""

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.api.job_servicer import MAX_LEASES
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.v1 import evaluation_pb2 as messages
from verification.labs.waiting import HANG_SECONDS

THRESHOLD = messages.Threshold(reward=1.0, index=0)


async def send(lab, *progress):
    """Send heartbeats in one call; return the states."""
    request = messages.HeartbeatRequest(leases=progress)
    return (await lab.jobs.Heartbeat(request, timeout=HANG_SECONDS)).leases


async def test_leases_of_one_call_are_extended_and_lost_separately(start_lab, spec):
    async with start_lab() as lab:
        await lab.create(spec(population__ensemble_sizes=[1]))
        worker = lab.worker()
        for _ in range(2):  # the base and the first candidate, which is the best
            report = await worker.report_of(await worker.claim_next())
            for answer in report.answers:
                answer.reward = 1.0
            await worker.jobs.ReportJob(report, timeout=HANG_SECONDS)
        held, lost = await worker.claim_next(), await worker.claim_next()
        lost.lease.token += 1
        progress = [messages.LeaseProgress(lease=one.lease) for one in (held, lost)]
        one, two, unknown = await send(lab, *progress, messages.LeaseProgress())
        assert one == messages.LeaseState(threshold=THRESHOLD)
        assert "under lease 1" in two.lost
        assert "no job" in unknown.lost
        await lab.cancel(held.experiment_id)
        assert await send(lab, progress[0]) == [messages.LeaseState(cancel=True)]


async def test_the_leases_of_a_call_are_bounded(start_lab):
    async with start_lab() as lab, lab.raises(InvalidInputError, "leases"):
        await send(lab, *[messages.LeaseProgress()] * (MAX_LEASES + 1))


def test_all_leases_that_a_worker_can_hold_fit_one_call():
    """One job at the engine, one in the background, one that waits, and the parked ones."""
    limits = EvaluatorSettings.model_fields["parked_candidates"].metadata
    (bound,) = (rule.le for rule in limits if hasattr(rule, "le"))
    assert bound + 3 <= MAX_LEASES
