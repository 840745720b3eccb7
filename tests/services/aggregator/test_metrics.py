"""Metrics of the aggregator."""

import asyncio

from verification.labs.waiting import HANG_SECONDS


def value(lab, name, **labels):
    return lab.aggregator._registry.get_sample_value(name, labels)


def lines(logged, event):
    return [line for line in logged() if line["event"].startswith(event)]


async def test_an_experiment_is_counted_from_its_creation_to_its_end(start_lab, spec):
    async with start_lab() as lab:
        assert value(lab, "modnorm_candidates_scored_total", split="selection") == 0
        created = await lab.select(spec())
        assert value(lab, "modnorm_open_jobs", state="pending", split="selection") == 7
        worker = lab.worker()
        await worker.claim_next()
        assert value(lab, "modnorm_open_jobs", state="leased", split="selection") == 1
        assert value(lab, "modnorm_experiments", state="SELECTING") == 1
        lab.aggregator._job_store.release_all()
        await lab.finish(created.id, worker)
        experts = len(worker.reports) - 7
        assert value(lab, "modnorm_candidates_scored_total", split="selection") == 7
        assert value(lab, "modnorm_candidates_scored_total", split="heldout") == experts
        phase = value(lab, "modnorm_candidate_phase_seconds_count", phase="generate")
        assert phase == len(worker.reports)
        assert value(lab, "modnorm_experiment_seconds_count", state="SUCCEEDED") == 1
        assert value(lab, "modnorm_step_seconds_count", state="SAMPLING") == 1
        assert value(lab, "modnorm_broker_up") == 1
        assert value(lab, "modnorm_open_jobs", state="pending", split="heldout") == 0


async def test_a_lost_lease_is_counted_and_named_in_the_log(start_lab, spec, logged):
    async with start_lab(lease_seconds=0.2) as lab:
        created = await lab.select(spec())
        job = await lab.worker().claim_next()
        async with asyncio.timeout(HANG_SECONDS):
            while not value(lab, "modnorm_lease_expiries_total"):
                await lab.get(created.id)
        kind = {"kind": "infrastructure"}
        assert value(lab, "modnorm_attempts_failed_total", **kind) == 1
    (line,) = lines(logged, "lease expired")
    assert names(line) == (created.id, job.lease.job_id, job.candidate, "selection")
    assert line["worker"] == "worker"


async def test_every_log_line_about_a_job_identifies_it(start_lab, spec, logged):
    async with start_lab() as lab:
        created = await lab.select(spec())
        worker = lab.worker()
        first, second = await worker.claim_next(), await worker.claim_next()
        await worker.report(first)
        await lab.fail(second.lease, "CANDIDATE", "NaN")
    for event, job in {"scored": first, "attempt candidate: NaN": second}.items():
        (line,) = lines(logged, event)
        assert names(line) == (created.id, job.lease.job_id, job.candidate, "selection")
    assert {line["job"] for line in lines(logged, "leased")} == {
        first.lease.job_id,
        second.lease.job_id,
    }
    steps = lines(logged, "step taken")
    assert {line["experiment"] for line in steps} == {created.id}
    assert [line["state"] for line in steps] == ["PENDING", "SAMPLING"]


def names(line):
    return line["experiment"], line["job"], line["candidate"], line["split"]


async def test_without_a_database_other_metrics_are_exported(start_lab):
    async with start_lab() as lab:
        assert value(lab, "modnorm_database_up") == 1
        lab.aggregator._database.close()
        assert value(lab, "modnorm_database_up") == 0
        assert value(lab, "modnorm_experiments", state="PENDING") is None
        assert value(lab, "modnorm_lease_expiries_total") == 0
