import asyncio
import shutil

import httpx
import pytest
import yaml
from filelock import FileLock

from modnorm.web.app import build_app
from modnorm.web.run_directories import DirectoryCatalog
from verification.labs.bundled_tasks import bundled_task

ADDRESS = "http://127.0.0.1"
SPEC = {
    "name": "shown",
    "model": "tiny-thicket",
    "task": bundled_task("countdown", selection=4, heldout=18, max_tokens=24),
    "method": {"name": "randopt", "radius": 0.01},
    "population": {"size": 4, "prefixes": [2, 4], "ensemble_sizes": [1, 2]},
}


@pytest.fixture(scope="session")
def finished_run(shared, start_modnorm):
    """A finished run of the bundled model, made once."""
    made = shared / "shown"
    with FileLock(shared / "shown.lock"):
        if not (made / "results.json").exists():
            spec = shared / "shown.yaml"
            spec.write_text(yaml.safe_dump(SPEC))
            ended = start_modnorm("run", spec, "--out", made).finish()
            assert ended.returncode == 0, ended.stderr
    return made


@pytest.fixture
def runs(finished_run, tmp_path):
    """A directory with a copy of the run and a run that has not finished."""
    folder = tmp_path / "runs"
    shutil.copytree(finished_run, folder / "first", ignore=shutil.ignore_patterns("state"))
    (folder / "second").mkdir()
    shutil.copy(finished_run / "spec.json", folder / "second")
    return folder


@pytest.fixture
def send():
    """Send a request to an application; returns the response."""

    async def send(app, method, address, headers=None):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            return await client.request(method, address, headers=headers)

    return lambda *arguments: asyncio.run(send(*arguments))


@pytest.fixture
def get(send, runs):
    """Request an address of the page; returns the response."""
    app = build_app(DirectoryCatalog([runs]))
    return lambda address, headers=None: send(app, "GET", address, headers)
