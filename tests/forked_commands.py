"""Commands and services in processes that fork from a server, so nothing is imported again."""

import os
import signal
import subprocess
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from modnorm.training import child_process
from verification.labs.fork_server import Launch
from verification.labs.forked import ForkServer, Process, running_fork_server
from verification.labs.waiting import HANG_SECONDS, wait_until

FORK_SERVER = "fork_server"
_RUNNING = pytest.StashKey[ForkServer]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Start one fork server for all workers; it imports nothing before the first request."""
    config = node.config
    if _RUNNING not in config.stash:
        stack = ExitStack()
        config.stash[_RUNNING] = stack.enter_context(running_fork_server(dict(os.environ)))
        config.add_cleanup(stack.close)
    node.workerinput[FORK_SERVER] = config.stash[_RUNNING].address


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
        return not self.process.alive

    def finish(self) -> "subprocess.CompletedProcess[str]":
        """Wait for its end."""
        code = self.process.wait(HANG_SECONDS)
        return subprocess.CompletedProcess(self.arguments, code, self.stdout, self.stderr)

    def wait_for(self, text: str) -> None:
        """Wait until it has printed or logged a text; fail if it ends before."""
        wait_until(
            lambda: text in self.stdout or text in self.stderr or self.has_ended(), repr(text)
        )
        assert text in self.stdout or text in self.stderr, self.stderr

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Press Ctrl-C, or send another signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(HANG_SECONDS)


@pytest.fixture(scope="session")
def forks(request):
    """Start processes that need not import torch again; all workers of a session share it."""
    address = getattr(request.config, "workerinput", {}).get(FORK_SERVER)
    own = running_fork_server(dict(os.environ))
    with nullcontext(ForkServer(address)) if address else own as server:
        yield server


@pytest.fixture
def forked_trainings(forks, monkeypatch):
    """Fork the children that train for this process."""
    monkeypatch.setattr(child_process, "COMMAND", forks.command(child_process.MODULE))


@pytest.fixture(scope="session")
def python_code(forks):
    """The start of a command line that runs code like `python -c`, by a fork."""
    return forks.command("tests.run_code")


@pytest.fixture(scope="session")
def start_module(forks, tmp_path_factory):
    """Start a module like `python -m`, in this process's environment unless another is given."""
    started = []

    def start(module, *arguments, environment=None):
        folder = tmp_path_factory.mktemp("process")
        output, errors = folder / "stdout", folder / "stderr"
        output.touch()
        errors.touch()
        told = tuple(map(str, arguments))
        launch = Launch(
            module,
            dict(os.environ if environment is None else environment),
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


@pytest.fixture(scope="session")
def start_modnorm(start_module):
    """Start the command line, in this process's environment unless another is given."""
    return partial(start_module, "modnorm")
