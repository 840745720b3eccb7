"""An aggregator that is stopped during a transaction, beside another on the same database."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from verification.labs.waiting import HANG_SECONDS

IDLE_SECONDS = 1.0
STOPS = """
import os
import signal
import sys

from sqlmodel import select

from modnorm.errors import UnavailableError
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.jobs.reporting import _lock

database = Database(sys.argv[1], idle_seconds=float(sys.argv[2]))
try:
    with database.write() as session:
        _lock(session, {sys.argv[3]})
        print("locked", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        session.exec(select(1))
except UnavailableError as error:
    print(error, flush=True)
with database.read() as session:
    print("goes on", session.exec(select(1)).one(), flush=True)
"""


@pytest.fixture
def database_url(postgres_url):
    """Postgres only: a stopped process keeps SQLite's lock."""
    return postgres_url


@contextmanager
def stopped(url, job_id):
    """Run a process that takes the first lock of a job's report and stops."""
    command = [sys.executable, "-c", STOPS, url, str(IDLE_SECONDS), job_id]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == "locked\n"
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_stopped_aggregator_loses_its_locks_and_the_others_continue(world, postgres_url):
    claim = world.claim_next(world.select())
    with stopped(postgres_url, claim.job.id):
        start = time.monotonic()
        assert world.stores.jobs.report(world.report_of(claim)).job is not None
        assert IDLE_SECONDS / 2 < time.monotonic() - start < HANG_SECONDS


def test_a_resumed_aggregator_gets_unavailable(world, postgres_url):
    claim = world.claim_next(world.select())
    with stopped(postgres_url, claim.job.id) as process:
        world.stores.jobs.report(world.report_of(claim))
        process.send_signal(signal.SIGCONT)
        told, _ = process.communicate(timeout=HANG_SECONDS)
    refused, after = told.splitlines()
    assert "did not answer" in refused
    assert "idle-in-transaction" in refused
    assert after == "goes on 1"
