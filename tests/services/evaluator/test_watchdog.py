"""A real worker under a real supervisor that is killed, stopped or hangs during a candidate."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest

from modnorm.services.common.settings import SupervisorSettings
from modnorm.services.evaluator import supervisor as supervising
from modnorm.services.evaluator.server import HANGS
from modnorm.services.evaluator.shutdown import Watchdog
from modnorm.services.evaluator.supervisor import Supervisor
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.run_job import run_job
from tests.services.evaluator.test_supervisor import until
from verification.labs.waiting import wait_until

HANGING = """
import os, sys, time
from pathlib import Path
from modnorm.engines import load_engine
from modnorm.services.evaluator import model_cache
from modnorm.services.evaluator.server import main

def load(*told):
    hang, engine = Path(sys.argv[1]), load_engine(*told)
    hang.with_name("worker").write_text(str(os.getpid()))
    generate = engine.generate

    def hung(prompts, limits, poll=None):
        for completion in generate(prompts, limits, poll=poll):
            yield completion
            while hang.exists() and len(prompts) != model_cache.PROMPTS:  # not in the replay
                time.sleep(1)

    engine.generate = hung
    return engine

model_cache.load_engine = load
main()
"""
"""A worker whose engine hangs after its first answer as long as a file exists, and its process id
in a file."""

HANGING_JUDGE = """
import sys, threading
from pathlib import Path
from modnorm.search import scoring
from modnorm.services.evaluator import server

def judge(*_):
    Path(sys.argv[1]).touch()
    threading.Event().wait()

scoring.judge = judge
server.EXIT_SECONDS = 0.5
server.main()
"""
"""A worker whose judge never returns; it creates a file."""


@asynccontextmanager
async def supervised(command, redis_url, target, monkeypatch):
    changes = {
        "MODNORM_BROKER_URL": redis_url,
        "MODNORM_AGGREGATOR_TARGET": target,
        "MODNORM_HEARTBEAT_SECONDS": "0.05",
        "MODNORM_STALL_SECONDS": "8",
        "MODNORM_TORCH_THREADS": "1",
    }
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(supervising, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(supervising, "COMMAND", command)
    settings = SupervisorSettings(bind_address="127.0.0.1:0", stop_grace=0.5, silence_seconds=1.5)
    supervisor = Supervisor(settings, ())
    await supervisor.start()
    try:
        yield lambda: getattr(supervisor._workers[0]._process, "pid", None)
    finally:
        await supervisor.stop()


def test_a_candidate_of_a_killed_stopped_or_hanging_worker_is_redone_equally(
    redis_url, target, aggregator, add_job, runner, python_code, tmp_path, monkeypatch
):
    run_job(runner, add_job("undisturbed", max_tokens=24))
    expected = aggregator.reports["undisturbed"]
    hang = tmp_path / "hang"
    command = (*python_code, HANGING, str(hang))

    def offer(token):
        """Offer the job as an aggregator does when its lease expired or was released."""
        add_job("a", max_tokens=24).lease.token = token

    def is_in_the_middle(token):
        """Whether heartbeats use the lease of an offer; those of older leases may come late."""
        beats = [beat for beat in aggregator.heartbeats if beat.lease.token == token]
        return any(0 < beat.answers_done < 5 for beat in beats)

    async def disturb(worker, token, signal_number):
        offer(token)
        await until(lambda: is_in_the_middle(token), "the middle of the candidate")
        before = worker()
        if signal_number is not None:
            os.kill(int((tmp_path / "worker").read_text()), signal_number)
        await until(lambda: worker() != before, "a new process")

    async def scenario():
        async with supervised(command, redis_url, target, monkeypatch) as worker:
            hang.touch()
            await disturb(worker, 1, signal.SIGKILL)
            await disturb(worker, 2, signal.SIGSTOP)
            assert not aggregator.failures
            await disturb(worker, 3, None)
            assert aggregator.failures["a"].kind == messages.FAILURE_KIND_INFRASTRUCTURE
            assert aggregator.failures["a"].lease.token == 3
            hang.unlink()
            offer(4)
            await until(lambda: "a" in aggregator.reports, "the report")

    asyncio.run(scenario())
    found = aggregator.reports["a"]
    assert found.lease.token == 4
    assert found.descriptor == expected.descriptor
    assert found.answers == expected.answers


@pytest.mark.parametrize(
    ("stall_seconds", "kind"),
    [("600", messages.FAILURE_KIND_RELEASED), ("8", messages.FAILURE_KIND_INFRASTRUCTURE)],
)
def test_a_worker_without_a_supervisor_ends_although_its_judge_hangs(
    target, aggregator, add_job, tmp_path, stall_seconds, kind
):
    add_job("a")
    judging = tmp_path / "judging"
    settings = {
        "MODNORM_STALL_SECONDS": stall_seconds,
        "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
        "MODNORM_BROKER_URL": "memory://",
        "MODNORM_AGGREGATOR_TARGET": target,
        "MODNORM_STOP_GRACE": "0",
    }
    with subprocess.Popen(
        [sys.executable, "-c", HANGING_JUDGE, str(judging)], env={**os.environ, **settings}
    ) as worker:
        try:
            wait_until(judging.exists, "the judge")
            if kind == messages.FAILURE_KIND_RELEASED:
                worker.terminate()
            assert worker.wait(60) == HANGS
        finally:
            worker.kill()
    assert aggregator.failures["a"].kind == kind


def test_a_sign_of_life_is_overdue_only_if_one_is_expected():
    watchdog = Watchdog(0.0)
    assert not watchdog.is_overdue
    watchdog.beat()
    assert not watchdog.is_overdue
    with watchdog.working():
        time.sleep(0.01)
        assert watchdog.is_overdue
    assert not watchdog.is_overdue
    patient = Watchdog(60.0)
    with patient.loading():
        assert not patient.is_overdue
