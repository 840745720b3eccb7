"""The command line in processes of its own, forked from one that has imported what they need."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from verification.labs.fork_server import Launch
from verification.labs.forked import ForkServer, Process
from verification.labs.waiting import HANG_SECONDS, wait_until


@dataclass(frozen=True)
class Command:
    """A command that was started."""

    arguments: tuple[str, ...]
    process: Process
    output: Path
    errors: Path

    @property
    def stdout(self) -> str:
        """What it has printed."""
        return self.output.read_text()

    @property
    def stderr(self) -> str:
        """What it has printed to stderr."""
        return self.errors.read_text()

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return not self.process.alive

    def finish(self) -> "subprocess.CompletedProcess[str]":
        """Wait for its end."""
        code = self.process.wait(HANG_SECONDS)
        return subprocess.CompletedProcess(self.arguments, code, self.stdout, self.stderr)

    def wait_for(self, text: str) -> None:
        """Wait until it has printed a text; fail if it ends before."""
        wait_until(lambda: text in self.stdout or self.has_ended(), f"{text!r} on stdout")
        assert text in self.stdout, self.stderr

    def interrupt(self) -> int:
        """Press Ctrl-C; return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(HANG_SECONDS)


@pytest.fixture(scope="session")
def forks():
    """Start processes that need not import torch again."""
    with ForkServer(dict(os.environ)) as server:
        yield server


@pytest.fixture(scope="session")
def start_modnorm(forks, tmp_path_factory):
    """Start the command line, in this process's environment unless another is given."""
    started = []

    def start(*arguments, environment=None):
        folder = tmp_path_factory.mktemp("command")
        output, errors = folder / "stdout", folder / "stderr"
        output.touch()
        errors.touch()
        told = tuple(map(str, arguments))
        launch = Launch(
            "modnorm",
            dict(environment or os.environ),
            log=str(errors),
            arguments=told,
            folder=os.getcwd(),  # noqa: PTH109 - tests change it
            output=str(output),
            ended=str(folder / "ended"),
        )
        started.append(forks.launch(launch))
        return Command(told, started[-1], output, errors)

    yield start
    for process in started:
        process.kill()
