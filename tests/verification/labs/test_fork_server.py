"""Processes that are forked instead of started."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from verification.labs.fork_server import Launch

PROBE = "tests.verification.labs.forked_probe"


@pytest.fixture
def launch(forks, tmp_path):
    def start(*arguments, **changes):
        out, err, ended = (str(tmp_path / name) for name in ("out", "err", "ended"))
        environment = {**os.environ, "WORD": "given", **changes}
        return forks.launch(Launch(PROBE, environment, err, arguments, str(tmp_path), out, ended))

    return start


def test_a_fork_runs_a_module_as_python_does(launch, tmp_path):
    assert launch("a", "b").wait() == 3
    assert (tmp_path / "out").read_text() == f"{tmp_path} given a b\n"
    assert (tmp_path / "err").read_text() == "aside\n"


def test_a_killed_fork_has_no_exit_code_of_its_own(launch):
    process = launch("sleep")
    assert process.alive
    with pytest.raises(TimeoutError, match="has not ended"):
        process.wait(0.1)
    process.kill()
    assert process.wait() == -signal.SIGKILL


def test_torch_uses_as_many_threads_as_the_environment_of_a_fork_says(launch, tmp_path):
    """Results depend on it, and torch read the parent's environment when it was imported."""
    launch("threads", OMP_NUM_THREADS="3").wait()
    assert (tmp_path / "out").read_text().splitlines()[1] == "3"


@pytest.fixture
def start_probe(forks):
    """Start the probe by a command line, as a program starts a child of its own."""
    command = [*forks.command(PROBE), "a"]
    environment = {**os.environ, "WORD": "given"}

    def start(*arguments):
        pipe = subprocess.PIPE
        started = [*command, *arguments]
        return subprocess.Popen(started, env=environment, stdout=pipe, stderr=pipe, text=True)

    return start


def test_a_forked_command_has_the_descriptors_and_the_exit_code_of_its_process(start_probe):
    with start_probe("b") as process:
        assert process.communicate() == (f"{Path.cwd()} given a b\n", "aside\n")
    assert process.returncode == 3


@pytest.mark.parametrize("state", ["sleep", "stop"])
def test_a_killed_command_ends_its_process(start_probe, state):
    with start_probe(state) as process:
        process.stderr.readline()
        process.kill()
        assert process.stdout.read()  # ends once nobody can write
    assert process.returncode == -signal.SIGKILL
