"""Processes that are forked instead of started."""

import os
import signal
from pathlib import Path

import pytest

from verification.labs.fork_server import Launch


@pytest.fixture
def launch(forks, tmp_path):
    def start(*arguments, **changes):
        out, err, ended = (str(tmp_path / name) for name in ("out", "err", "ended"))
        environment = {**os.environ, "WORD": "given", **changes}
        probe = "tests.verification.labs.forked_probe"
        return forks.launch(Launch(probe, environment, err, arguments, str(tmp_path), out, ended))

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


def test_a_process_that_nobody_watches_holds_no_descriptor(launch):
    """A campaign starts thousands of processes in one Python."""
    launch().wait()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(8):
        launch().wait()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
