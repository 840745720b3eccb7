"""Processes that a fork server starts, signalled by process descriptor."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from verification.labs.fork_server import Launch, command
from verification.labs.waiting import HANG_SECONDS


class Process:
    """One process, the leader of its own session."""

    def __init__(self, pid: int, ended: str = "") -> None:
        self.pid = pid
        self._ended = ended
        self._descriptor: int | None = None
        with suppress(ProcessLookupError):
            self._descriptor = os.pidfd_open(pid)
            weakref.finalize(self, os.close, self._descriptor)

    @property
    def alive(self) -> bool:
        return not self._has_ended(0)

    def wait(self, seconds: float = HANG_SECONDS) -> int:
        """Wait for its end; return its exit code, or -9 if it wrote none."""
        if not self._has_ended(seconds):
            raise TimeoutError(f"process {self.pid} has not ended after {seconds:g} s")
        written = Path(self._ended)
        return int(written.read_text()) if self._ended and written.exists() else -signal.SIGKILL

    def send_signal(self, number: signal.Signals) -> None:
        """Signal only this process."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def signal_all(self, number: signal.Signals) -> None:
        """Signal the process and its descendants, as the end of a container does."""
        for pid in session_of(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill only this process."""
        self.send_signal(signal.SIGKILL)

    def children(self) -> list[int]:
        """Return the child processes of all its threads."""
        found = []
        for listed in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with suppress(OSError):  # the thread has ended
                found += [int(pid) for pid in listed.read_text(encoding="ascii").split()]
        return found

    def stop(self, seconds: float) -> bool:
        """Terminate the process, kill it if it does not end; return whether it ended itself.

        Remaining descendants are killed in any case.
        """
        self.signal_all(signal.SIGCONT)
        self.send_signal(signal.SIGTERM)
        ended = self._has_ended(seconds)
        self.signal_all(signal.SIGKILL)
        return ended

    def _has_ended(self, seconds: float) -> bool:
        """Wait for its end; return False after the timeout."""
        descriptor = self._descriptor
        return descriptor is None or bool(select.select([descriptor], [], [], seconds)[0])


def session_of(leader: int) -> list[int]:
    """Return the processes of a session; a worker under a supervisor has its own group."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # After the name in brackets: state, parent, group, session.
            if stat.read_text().rpartition(")")[2].split()[3] == str(leader):
                members.append(int(stat.parent.name))
    return members


class ForkServer:
    """A process that has imported the services, and from which processes fork."""

    def __init__(self, address: str) -> None:
        self.address = address

    def launch(self, launch: Launch) -> Process:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(None)  # Kombu sets a default for all sockets while it connects
            try:
                connection.connect(self.address)
                connection.sendall(launch.to_line().encode())
                with connection.makefile() as answers:
                    answer = answers.readline()
            except ConnectionError:
                answer = ""
        if not answer:
            raise RuntimeError("the process that services are forked from has ended")
        return Process(json.loads(answer)["pid"], launch.ended)

    def command(self, module: str) -> Sequence[str]:
        """Return a command line that runs a module as `python -m` does, by a fork."""
        return command(self.address, module)


@contextmanager
def running_fork_server(environment: Mapping[str, str]) -> Iterator[ForkServer]:
    """Run a fork server inside the context; its end kills all processes that it has started."""
    with (
        TemporaryDirectory(prefix="modnorm-forks-") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        address = str(Path(folder, "socket"))
        listener.bind(address)
        listener.listen()
        parent = subprocess.Popen(
            [sys.executable, "-m", "verification.labs.fork_server", str(listener.fileno())],
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
        listener.close()
        try:
            yield ForkServer(address)
        finally:
            parent.terminate()
            parent.communicate()
