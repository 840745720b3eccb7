"""The aggregator's status of the lab."""

import asyncio
from contextlib import AsyncExitStack

import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from modnorm.services.common.service_process import ANY_PORT, start_service
from modnorm.services.common.settings import SamplerSettings
from modnorm.services.sampler.server import build as build_sampler
from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.tokens import Role, add_token, make_token
from tests.services.aggregator.world import on_both_databases
from verification.labs.waiting import HANG_SECONDS

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def status(lab):
    stub = status_pb2_grpc.StatusServiceStub(lab.channel)
    return await stub.GetStatus(status_pb2.GetStatusRequest(), timeout=HANG_SECONDS)


def by_name(response):
    return {one.name: one for one in response.dependencies}


@on_both_databases
async def test_a_lab_counts_pending_jobs_and_lists_workers(start_lab, spec, database_url):
    async with start_lab(database_url) as lab:
        assert not (await status(lab)).jobs_pending
        await lab.select(spec())
        await lab.worker().claim_next()
        found = await status(lab)
        assert found.jobs_pending == 6
        (worker,) = found.workers
        assert (worker.name, worker.jobs) == ("worker", 1)
        assert abs(worker.seen.ToSeconds() - found.time.ToSeconds()) < 60
        assert by_name(found)["database"].usable
        assert by_name(found)["broker"].usable


async def test_workers_are_read_in_the_event_loop_which_changes_them(start_lab, monkeypatch):
    async with start_lab() as lab:
        workers = lab.aggregator._workers
        read, loops = workers.messages, []

        def messages(leases):
            loops.append(asyncio.get_running_loop())  # raises in a thread without one
            return read(leases)

        monkeypatch.setattr(workers, "messages", messages)
        assert by_name(await status(lab))["database"].usable
        assert loops == [asyncio.get_running_loop()]


async def test_a_dependency_that_is_down_is_named_with_its_remedy(start_lab):
    changes = {"calibrator_target": "127.0.0.1:1", "broker_url": "redis://127.0.0.1:1/0"}
    async with start_lab(**changes) as lab:
        found = by_name(await status(lab))
        assert not found["calibrator"].usable
        assert "start the calibrator" in found["calibrator"].remedy
        assert not found["broker"].usable
        assert "MODNORM_BROKER_URL" in found["broker"].remedy
        lab.aggregator._database.close()
        assert not by_name(await status(lab))["database"].usable


async def test_a_token_that_cannot_be_read_is_named(start_lab, tmp_path):
    token = tmp_path / "token"
    async with start_lab(token_file=token) as lab:
        found = by_name(await status(lab))
        assert found["database"].usable
        assert not found["sampler"].usable
        assert "MODNORM_TOKEN_FILE" in found["sampler"].remedy
        token.write_text("of this lab")
        assert "cannot read" not in by_name(await status(lab))["sampler"].detail


async def test_a_token_that_a_neighbour_refuses_is_named(start_lab, tmp_path):
    accepted = tmp_path / "tokens.yaml"
    add_token(accepted, make_token("aggregator", [Role.INTERNAL])[1])
    settings = SamplerSettings(
        bind_address=ANY_PORT, cache_dir=tmp_path / "cache", accepted_tokens=accepted, stop_grace=0
    )
    async with AsyncExitStack() as stack:
        target = await start_service(build_sampler(settings), stack)
        async with start_lab(sampler_target=target) as lab:
            sampler = by_name(await status(lab))["sampler"]
    assert not sampler.usable
    assert "MODNORM_TOKEN_FILE" in sampler.remedy


@pytest.mark.integration
async def test_a_database_that_hangs_is_logged_and_makes_health_not_serving(
    start_lab, postgres_url, monkeypatch
):
    monkeypatch.setattr("modnorm.services.aggregator.lab_status.CHECK_SECONDS", 0.5)
    monkeypatch.setattr("modnorm.services.aggregator.server.ANSWER_SECONDS", 0.2)

    async def serving(lab, expected):
        stub = health_pb2_grpc.HealthStub(lab.channel)
        async for said in stub.Watch(health_pb2.HealthCheckRequest(), timeout=HANG_SECONDS):
            if said.status == expected:
                return

    async with start_lab(postgres_url) as lab:
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            found = by_name(await status(lab))
            assert "no answer within" in found["database"].detail
            assert found["broker"].usable
            await serving(lab, NOT_SERVING)
        await serving(lab, SERVING)
        assert by_name(await status(lab))["database"].usable
