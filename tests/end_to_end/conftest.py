"""The whole system through its front door: real processes, the bundled model, small specs."""

import os
import shutil

import psycopg
import pytest
import yaml
from filelock import FileLock

from modnorm.client.client import Client
from tests.end_to_end.lab_processes import Lab
from verification.labs.bundled_tasks import bundled_task

RESULT_FILES = (
    "results.json",
    "candidates.csv",
    "answers.parquet",
    "votes.parquet",
    "descriptors.parquet",
)
"""Files that depend on the experiment alone."""


@pytest.fixture(scope="session")
def cache_dir(shared):
    """Profiles are calibrated once in the session, as they are once on a machine."""
    return shared / "cache"


@pytest.fixture(scope="session")
def environment(cache_dir):
    """What every process of these tests runs under."""
    inherited = {name: value for name, value in os.environ.items() if "MODNORM" not in name}
    return inherited | {"OMP_NUM_THREADS": "1", "MODNORM_CACHE_DIR": str(cache_dir)}


@pytest.fixture(scope="session")
def write_spec(tmp_path_factory):
    """Write a small spec; arguments replace fields by dotted path. Returns its file."""
    folder = tmp_path_factory.mktemp("specs")

    def write(name, **changes):
        spec = {
            "name": name,
            "model": {"name": "tiny-thicket"},
            "task": bundled_task("gsm8k", selection=6, heldout=6, max_tokens=24),
            "method": {"name": "modular_norm", "radius": 1.28},
            "population": {"size": 4, "prefixes": [2, 4], "ensemble_sizes": [1, 2]},
            "calibration": {"examples": 2, "max_length": 16, "iterations": 1},
            "reuse": False,  # else a disturbed run would take the answers of the undisturbed one
        }
        for path, value in changes.items():
            *sections, field = path.split("__")
            target = spec
            for section in sections:
                target = target[section]
            target[field] = value
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(spec))
        return path

    return write


@pytest.fixture(scope="session")
def start_command(start_modnorm, environment):
    """Start the command line; keywords change its environment."""
    return lambda *arguments, **changes: start_modnorm(
        *arguments, environment=environment | changes
    )


@pytest.fixture(scope="session")
def modnorm(start_command):
    """Run the command line to its end, in a process of its own."""

    def run(*arguments, check=True, **changes):
        ended = start_command(*arguments, **changes).finish()
        if check:
            assert ended.returncode == 0, ended.stderr
        return ended

    return run


@pytest.fixture(scope="session")
def results():
    """Read the files that two runs of one experiment must share byte for byte."""
    return lambda directory: {name: (directory / name).read_bytes() for name in RESULT_FILES}


@pytest.fixture(scope="module")
def spec_file(write_spec):
    return write_spec("small")


@pytest.fixture(scope="session")
def finished(modnorm, write_spec, shared, tmp_path_factory):
    """The directory of a run of the spec `small` that nobody disturbed: a copy of this process."""
    made = shared / "undisturbed"
    with FileLock(shared / "undisturbed.lock"):
        if not (made / "results.json").exists():
            modnorm("run", write_spec("small"), "--out", made)
    return shutil.copytree(made, tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.fixture(scope="module")
def database_url(_postgres, request):
    name = request.module.__name__.rpartition(".")[2]
    with psycopg.connect(f"{_postgres}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{_postgres}/{name}"


@pytest.fixture(scope="module")
def broker_url(_redis):
    return _redis.url


@pytest.fixture(scope="module")
def lab(forks, environment, tmp_path_factory, database_url, broker_url):
    made = Lab(
        forks,
        environment=environment
        | {
            "MODNORM_DATABASE_URL": database_url,
            "MODNORM_BROKER_URL": broker_url,
            "MODNORM_DATA_ROOTS": str(tmp_path_factory.getbasetemp()),
            "MODNORM_MODEL_ROOTS": str(tmp_path_factory.getbasetemp()),
            # Failures are noticed within seconds, not within a minute.
            "MODNORM_LEASE_SECONDS": "10",
            "MODNORM_HEARTBEAT_SECONDS": "1",
            "MODNORM_REAP_SECONDS": "1",
        },
        folder=tmp_path_factory.mktemp("lab"),
    )
    with made.services():
        yield made


@pytest.fixture
def client(lab):
    with Client(lab.server) as made:
        yield made
