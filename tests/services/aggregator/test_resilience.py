"""Failures of services lose no results."""

import asyncio

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.exc import DataError

from modnorm.errors import ConflictError, UnavailableError
from modnorm.services.aggregator import notifications
from modnorm.services.aggregator.storage.sole_process import SoleProcess
from modnorm.services.aggregator.storage.tables import Experiment
from modnorm.services.common.queue import make_celery
from modnorm.v1 import experiment_pb2
from tests.services.aggregator.world import on_both_databases
from verification.labs.waiting import HANG_SECONDS

SELECTING = experiment_pb2.EXPERIMENT_STATE_SELECTING
NEVER = 3600.0
ENDED = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
"""Ends the session of the lock."""
CANCELLED = experiment_pb2.EXPERIMENT_STATE_CANCELLED


@on_both_databases
async def test_a_second_aggregator_on_one_database_refuses_to_start(
    start_lab, another_aggregator, spec, database_url, monkeypatch
):
    monkeypatch.setattr("modnorm.services.aggregator.storage.sole_process.WAIT_SECONDS", 0.5)
    async with start_lab(database_url) as lab:
        created = await lab.create(spec())
        with pytest.raises(ConflictError, match="another aggregator uses this database"):
            async with another_aggregator(lab.settings):
                pass
        await lab.finish(created.id, lab.worker())
    async with another_aggregator(lab.settings) as heir:
        assert (await heir.get(created.id)).id == created.id


async def test_an_aggregator_takes_its_lock_again_when_postgres_ended_the_session(
    start_lab, postgres_url, monkeypatch
):
    monkeypatch.setattr("modnorm.services.aggregator.storage.sole_process.WAIT_SECONDS", 0.5)
    async with start_lab(postgres_url, reap_seconds=NEVER) as lab:
        first, other = lab.aggregator._sole, SoleProcess(postgres_url)
        await asyncio.sleep(0.3)  # the first look at the lock is over
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(ENDED)
        await asyncio.to_thread(first.keep)
        with pytest.raises(ConflictError):
            await asyncio.to_thread(other.take)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(ENDED)
        await asyncio.to_thread(other.take)
        with pytest.raises(ConflictError):
            await asyncio.to_thread(first.keep)
        await asyncio.to_thread(other.release)


def test_a_released_lock_is_not_taken_again(postgres_url):
    first, other = SoleProcess(postgres_url), SoleProcess(postgres_url)
    first.take()
    first.release()
    first.keep()
    other.take()
    other.release()


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT pg_terminate_backend(pg_backend_pid())", UnavailableError),
        ("SELECT 1 / 0", DataError),
    ],
    ids=["disconnected", "failed"],
)
def test_a_lock_whose_statement_failed_is_taken_the_next_time(
    postgres_url, monkeypatch, statement, error
):
    monkeypatch.setattr("modnorm.services.aggregator.storage.sole_process.WAIT_SECONDS", 0.5)
    first, other = SoleProcess(postgres_url), SoleProcess(postgres_url)
    failing = [statement]

    def replace(_connection, _cursor, sent, parameters, _context, _many):
        return (failing.pop(), ()) if failing and "advisory" in sent else (sent, parameters)

    event.listen(first._engine, "before_cursor_execute", replace, retval=True)
    with pytest.raises(error):
        first.take()
    assert not failing
    first.keep()
    with pytest.raises(ConflictError):
        other.take()
    first.release()
    other.take()
    other.release()


@on_both_databases
async def test_another_aggregator_continues_after_a_crash(
    start_lab, another_aggregator, spec, database_url
):
    async with start_lab(database_url, lease_seconds=0.5) as lab:
        created = await lab.select(spec())
        worker = lab.worker()
        for _ in range(3):
            await worker.report(await worker.claim_next())
        lost = await worker.claim_next()
        await lab.die()
        async with another_aggregator(lab.settings) as heir:
            successor = heir.worker()
            await heir.finish(created.id, successor)
            await heir.check_results(await heir.get(created.id))
            assert not set(worker.reports) & set(successor.reports)
            assert lost.lease.job_id in successor.reports


@on_both_databases
async def test_a_worker_keeps_its_job_during_an_outage_of_the_aggregator(
    start_lab, another_aggregator, spec, database_url
):
    async with start_lab(database_url, lease_seconds=2.0) as lab:
        created = await lab.select(spec())
        kept, lost = [await lab.worker().claim_next() for _ in range(2)]
        await lab.die()
        await asyncio.sleep(2.5)
        # A busy machine needs its time between two heartbeats.
        settings = lab.settings.model_copy(update={"lease_seconds": 5.0})
        async with another_aggregator(settings) as heir:
            await asyncio.sleep(0.5)
            held = [kept.lease]
            async with asyncio.timeout(60):
                while (again := await heir.worker().claim()) is None or (
                    again.lease.job_id != lost.lease.job_id
                ):
                    held += [again.lease] if again else []
                    for lease in held:
                        await heir.heartbeat(lease)
                    await asyncio.sleep(0.1)
            assert again.lease.token > lost.lease.token
            await heir.worker().report(kept)
            attempts = [one.attempts for one in await heir.candidates(created.id)]
            assert attempts[:2] == [1, 1]
            assert not any(attempts[2:])


@on_both_databases
async def test_a_lease_that_cannot_be_ended_does_not_block_others(start_lab, spec, database_url):
    async with start_lab(database_url, lease_seconds=0.5) as lab:
        experiments = [await lab.select(spec(), name) for name in ("unreadable", "other")]
        for created in experiments:
            other = [one.id for one in experiments if one is not created]
            job = await lab.worker().claim(unfit_experiments=other)
            if created is experiments[0]:
                with lab.aggregator._database.write() as session:
                    session.get_one(Experiment, created.id).spec_json = "of a later version"
        async with asyncio.timeout(HANG_SECONDS):
            unfit = {"unfit_experiments": [experiments[0].id]}
            while (again := await lab.worker().claim(**unfit)) is None or (
                again.lease.job_id != job.lease.job_id
            ):
                pass
        assert again.lease.token > job.lease.token


async def test_the_end_of_a_broker_outage_is_noticed(start_lab, redis_url, monkeypatch):
    monkeypatch.setattr(notifications, "RETRY_SECONDS", 0.05)
    async with start_lab(broker_url="redis://127.0.0.1:1/0") as lab:
        lab.aggregator._announcer._app = make_celery(redis_url)
        async with asyncio.timeout(HANG_SECONDS):
            while not lab.aggregator._metrics.broker_up._value.get():  # noqa: ASYNC110 - a gauge
                await asyncio.sleep(0.01)


async def test_a_service_outage_delays_an_experiment_visibly(start_lab, spec):
    async with start_lab(calibrator_target="127.0.0.1:1") as lab:
        method = {"name": "modular_norm", "radius": 0.2}
        created = await lab.create(spec(method=method))
        async for event in lab.watch(created.id):
            if event.message.startswith("waiting"):
                break
        found = await lab.get(created.id)
        assert found.state < SELECTING
        assert event.message == f"waiting: {found.waits_for}"
        assert found.waits_for.startswith("the calibrator cannot be reached: cannot connect to ")
        await lab.cancel(created.id)
        assert (await lab.finish(created.id))[-1].state == CANCELLED


async def test_without_the_sampler_nothing_is_created(start_lab, spec):
    async with (
        start_lab(sampler_target="127.0.0.1:1") as patient,
        patient.without_retries() as lab,
    ):
        # A caller would take an UnreachableError for one of the aggregator itself.
        async with lab.raises(UnavailableError) as met:
            await lab.create(spec())
        assert "the sampler cannot be reached: cannot connect to 127.0.0.1:1" in met.error.message
        assert not (await lab.list()).experiments
