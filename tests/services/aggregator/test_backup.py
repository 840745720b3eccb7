"""A lab restored from a backup during a run finishes with the same results."""

import asyncio
import shutil
import subprocess
import uuid
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from modnorm.client.client import Client
from modnorm.client.fetching import save_run

TIMES = "timings.json"


def program(name):
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = next((folder / name for folder in folders if (folder / name).exists()), None)
    return str(found or shutil.which(name))


def dump(url):
    command = [program("pg_dump"), "--format=custom", f"--dbname={url}"]
    return subprocess.run(command, check=True, capture_output=True).stdout


def restore(url, backup):
    command = [program("pg_restore"), f"--dbname={url}", "--exit-on-error"]
    subprocess.run(command, check=True, input=backup)


@pytest.fixture
def empty_url(postgres_url):
    """A second database on the same server."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def files(lab, experiment_id, folder):
    """Return the contents of a run's files, except the file with times."""
    with Client(f"127.0.0.1:{lab.aggregator.port}") as client:
        save_run(client, experiment_id, folder)
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != TIMES
    }


def test_a_restored_run_finishes_with_the_same_results(
    start_lab, spec, postgres_url, empty_url, tmp_path
):
    async def begin():
        """Make a backup with three finished candidates and one leased; then finish."""
        # Longer than a dump takes: the job in hand is reported after it.
        async with start_lab(postgres_url, lease_seconds=5.0) as lab:
            created = await lab.select(spec())
            worker = lab.worker()
            for _ in range(3):
                await worker.report(await worker.claim_next())
            in_hand = await worker.claim_next()
            backup = await asyncio.to_thread(dump, postgres_url)
            await worker.report(in_hand)
            done = list(worker.reports)
            await lab.finish(created.id, worker)
            found = await asyncio.to_thread(files, lab, created.id, tmp_path / "first")
        return created.id, backup, done, found

    async def go_on(experiment_id, done):
        async with start_lab(empty_url, lease_seconds=0.5) as lab:
            worker = lab.worker()
            await lab.finish(experiment_id, worker)
            await lab.check_results(await lab.get(experiment_id))
            assert set(done[:3]).isdisjoint(worker.reports)
            assert done[3] in worker.reports
            return await asyncio.to_thread(files, lab, experiment_id, tmp_path / "second")

    experiment_id, backup, done, expected = asyncio.run(begin())
    restore(empty_url, backup)
    assert asyncio.run(go_on(experiment_id, done)) == expected
    assert len(expected) > 3
