"""The services of a lab as processes that are restarted when they end."""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verification.labs.fork_server import Launch
from verification.labs.forked import ForkServer, Process
from verification.labs.servers import Server

RESTART_SECONDS = 0.5
"""Pause before a restart, as in a restart policy."""
_LOOK_SECONDS = 0.1
_STOP_SECONDS = 15.0


@dataclass
class Service:
    """One service.

    Attributes:
        name: Its name, also in leases.
        module: The module that it runs.
        environment: Its complete environment.
        clock: File with the offset of its time of day.
        namespace: Network namespace; empty for the default one.
        arguments: Arguments of its command line.
        folder: Its working directory; empty for the fork server's.
        process: The process, once started.
        starts: Number of starts.
    """

    name: str
    module: str
    environment: Mapping[str, str]
    clock: Path | None = None
    namespace: str = ""
    arguments: Sequence[str] = ()
    folder: str = ""
    process: Process | None = None
    starts: int = field(default=0)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.alive

    def launch(self, forks: ForkServer, logs: Path) -> None:
        """Start the service; remaining child processes are killed first, as in a container."""
        if self.process is not None:
            self.process.signal_all(signal.SIGKILL)
        self.starts += 1
        self.process = forks.launch(
            Launch(
                module=self.module,
                environment=self.environment,
                log=str(logs / f"{self.name}.log"),
                clock=str(self.clock or ""),
                namespace=self.namespace,
                arguments=self.arguments,
                folder=self.folder,
            )
        )

    def signal(self, number: signal.Signals) -> None:
        """Signal the service and its child processes, as the end of a container does."""
        if self.process is not None:
            self.process.signal_all(number)


class RestartPolicy:
    """A restart policy: restarts ended processes after a pause until `stop`."""

    def __init__(
        self, forks: ForkServer, logs: Path, services: Sequence[Service], servers: Sequence[Server]
    ) -> None:
        self._forks = forks
        self._logs = logs
        self._services = tuple(services)
        self._servers = tuple(servers)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="policy", daemon=True)

    def start(self) -> None:
        """Start all services and keep them running."""
        for server in self._servers:
            server.start()
        for server in self._servers:
            server.wait()
        for service in self._services:
            service.launch(self._forks, self._logs)
        self._thread.start()

    def stop(self) -> None:
        """End all services."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for service in self._services:
            if service.process is not None:
                service.process.stop(_STOP_SECONDS)
        for server in self._servers:
            server.end(signal.SIGKILL)

    def _keep(self) -> None:
        found_dead: dict[int, float] = {}
        while not self._stopping.wait(_LOOK_SECONDS):
            for service in self._services:
                self._revive(service, found_dead, self._relaunch(service))
            for server in self._servers:
                self._revive(server, found_dead, server.start)

    def _relaunch(self, service: Service) -> Callable[[], None]:
        return lambda: service.launch(self._forks, self._logs)

    @staticmethod
    def _revive(
        what: Service | Server, found_dead: dict[int, float], start: Callable[[], None]
    ) -> None:
        if what.alive:
            found_dead.pop(id(what), None)
        elif time.monotonic() - found_dead.setdefault(id(what), time.monotonic()) > (
            RESTART_SECONDS
        ):
            start()
            found_dead.pop(id(what), None)
