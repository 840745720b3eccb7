"""The whole system through its front door: real processes, the bundled model, small specs."""

import os
import subprocess
import sys

import pytest
import yaml

RESULT_FILES = ("results.json", "candidates.csv", "votes.jsonl")
"""Files that depend on the experiment alone."""


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """Profiles are calibrated once in the session, as they are once on a machine."""
    return tmp_path_factory.mktemp("cache")


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
            "task": {
                "name": "countdown",
                "selection": {"source": "bundled:countdown-selection", "limit": 8},
                "heldout": {"source": "bundled:countdown-heldout", "limit": 8},
                "max_tokens": 48,
            },
            "method": {"name": "modular_norm", "radius": 0.32},
            "population": {
                "size": 6,
                "prefixes": [3, 6],
                "ensemble_sizes": [1, 2],
                "statistics": "full",
            },
            "calibration": {"examples": 4},
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
def modnorm(environment):
    """Run the command line to its end."""

    def run(*arguments, check=True, **changes):
        ended = subprocess.run(
            [sys.executable, "-m", "modnorm", *map(str, arguments)],
            env=environment | changes,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if check:
            assert ended.returncode == 0, ended.stderr
        return ended

    return run


@pytest.fixture(scope="session")
def results():
    """Read the files that two runs of one experiment must share byte for byte."""
    return lambda directory: {name: (directory / name).read_bytes() for name in RESULT_FILES}


@pytest.fixture(scope="session")
def finished(modnorm, write_spec, tmp_path_factory):
    """The directory of a run of the spec `small` that nobody disturbed."""
    directory = tmp_path_factory.mktemp("undisturbed") / "run"
    modnorm("run", write_spec("small"), "--out", directory)
    return directory
