"""The lab of chaos tests: real processes, Postgres and Redis, connected through proxies.

Ended processes are restarted. As root, the lab's files are on a small disk.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from modnorm.services.common.healthcheck import check
from modnorm.services.common.settings import inherited_environment
from verification.chaos.proxy import Proxy
from verification.labs.fork_server import Launch, set_offset
from verification.labs.forked import ForkServer, Process
from verification.labs.servers import USER, Broker, Database, Server, free_port, owned
from verification.labs.waiting import wait_until

BALLAST = "ballast"
_CHUNK = 256 * 1024


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[bool]:
    """Mount a small file system on a directory; yield False without the permission."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=755", "tmpfs", str(folder))
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True, capture_output=True)


def fill(folder: Path) -> None:
    """Write a file until its disk is full."""
    with (folder / BALLAST).open("wb", buffering=0) as ballast:
        for size in (_CHUNK, 4096):
            try:
                while True:
                    ballast.write(b"\0" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def empty(folder: Path) -> None:
    """Delete the file of `fill`."""
    (folder / BALLAST).unlink(missing_ok=True)


RESTART_SECONDS = 0.5
"""Pause before a restart, as in a restart policy."""
_LOOK_SECONDS = 0.1
_STOP_SECONDS = 15.0


@dataclass(eq=False)
class Service:
    """One service, a process that a restart policy keeps running."""

    name: str
    """Its name, also in leases."""
    module: str
    environment: Mapping[str, str]
    clock: Path | None = None
    """File with the offset of its time of day."""
    process: Process | None = None
    starts: int = 0

    @property
    def alive(self) -> bool:
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
        found_dead: dict[Service | Server, float] = {}
        starts: dict[Service | Server, Callable[[], None]] = {
            **{one: partial(one.launch, self._forks, self._logs) for one in self._services},
            **{one: one.start for one in self._servers},
        }
        while not self._stopping.wait(_LOOK_SECONDS):
            for one, start in starts.items():
                now = time.monotonic()
                if one.alive:
                    found_dead.pop(one, None)
                elif now - found_dead.setdefault(one, now) > RESTART_SECONDS:
                    start()
                    found_dead.pop(one)


LEASE_SECONDS = 3.0
REAP_SECONDS = 0.5
DISK_MEBIBYTES = 128
SMALL_WAL = {"min_wal_size": "2MB", "max_wal_size": "8MB"}
"""Settings of Postgres with which a full disk has an effect within a schedule."""
_PACE: dict[str, str] = {
    "MODNORM_LEASE_SECONDS": str(LEASE_SECONDS),
    "MODNORM_HEARTBEAT_SECONDS": "0.7",
    "MODNORM_REAP_SECONDS": str(REAP_SECONDS),
    "MODNORM_CONDUCT_SECONDS": "0.3",
    "MODNORM_RETRY_SECONDS": "2",
    "MODNORM_STOP_GRACE": "2",
    "MODNORM_TORCH_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "GOMP_SPINCOUNT": "2000",
}
"""Short timeouts, so that a schedule takes seconds; one thread per process."""


class Lab:
    """All parts of a lab, not yet started."""

    def __init__(self, folder: Path, proxy: Proxy, workers: Sequence[str], *, disk: bool) -> None:
        self.state = folder / "state"
        """Folder of the lab's files."""
        self.disk = disk
        """Whether it is a small disk."""
        self.clock = folder / "clock"
        """File with the offset of the aggregator's time of day."""
        self.errors: list[str] = []
        """Errors that are not visible later."""
        self.proxy = proxy
        self.workers = tuple(workers)
        self._folder = folder
        state = self.state
        self.database = Database(owned(state / "postgres"), folder / "postgres.log", SMALL_WAL)
        self.database.create("--wal-segsize=1")
        self.broker = Broker(owned(state / "redis"), folder / "redis.log")
        self._addresses = {
            name: f"127.0.0.1:{free_port()}" for name in ("calibrator", "sampler", "aggregator")
        }
        services = [
            self._service("calibrator", {}),
            self._service("sampler", {}),
            self._aggregator(),
            *map(self._worker, workers),
        ]
        self.services = {service.name: service for service in services}
        self.move_clock(0.0)
        self.forget()

    @property
    def server(self) -> str:
        """HOST:PORT of the aggregator, for clients."""
        return self._addresses["aggregator"]

    def forget(self) -> None:
        """Delete profiles and scale maps."""
        shutil.rmtree(self.state / "cache", ignore_errors=True)
        (self.state / "cache").mkdir(mode=0o777)

    def move_clock(self, seconds: float) -> None:
        """Set the offset of the aggregator's time of day."""
        set_offset(self.clock, seconds)

    def wait(self) -> None:
        """Wait until all services answer."""
        self.database.wait()
        self.broker.wait()
        for name, address in self._addresses.items():
            wait_until(lambda here=address: check(here) == "SERVING", f"{name} serves")  # type: ignore[misc]
        for name in self.workers:
            wait_until(partial(getattr, self.services[name], "alive"), f"{name} runs")

    def kill(self, name: str) -> None:
        """Kill a service and its child processes."""
        self.services[name].signal(signal.SIGKILL)

    def _service(self, name: str, changes: Mapping[str, str], of: str = "") -> Service:
        """Return a service; `of` is the module of one whose name is another."""
        own = {
            "MODNORM_BIND_ADDRESS": self._addresses.get(name, "127.0.0.1:0"),
            "MODNORM_CACHE_DIR": str(self.state / "cache"),
        }
        module = f"modnorm.services.{of or f'{name}.server'}"
        return Service(name, module, {**inherited(), **_PACE, **own, **changes})

    def _aggregator(self) -> Service:
        """Return the aggregator, whose clock can be moved."""
        database = self._link("aggregator-database", self.database.target)
        broker = self._link("aggregator-broker", self.broker.target)
        changes = {
            "MODNORM_DATABASE_URL": f"postgresql://{USER}@{database}/postgres",
            "MODNORM_BROKER_URL": f"redis://{broker}/0",
        }
        for name in ("calibrator", "sampler"):
            target = self._link(f"aggregator-{name}", self._addresses[name])
            changes[f"MODNORM_{name.upper()}_TARGET"] = target
        service = self._service("aggregator", changes)
        service.clock = self.clock
        return service

    def _worker(self, name: str) -> Service:
        own = {
            "MODNORM_AGGREGATOR_TARGET": self._link(f"{name}-aggregator", self.server),
            "MODNORM_BROKER_URL": f"redis://{self._link(f'{name}-broker', self.broker.target)}/0",
            "MODNORM_WORKER_NAME": name,
            "MODNORM_CACHE_DIR": str(self._folder / name),
        }
        kind = "supervisor" if name == "supervised" else "server"
        return self._service(name, own, f"evaluator.{kind}")

    def _link(self, name: str, target: str) -> str:
        return self.proxy.add(name, target).address


@contextmanager
def open_lab(forks: ForkServer, folder: Path, *, supervised: bool = True) -> Iterator[Lab]:
    """Run a lab inside the context; if supervised, with an evaluator as on a host with GPUs."""
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "state", DISK_MEBIBYTES))
        proxy = stack.enter_context(Proxy())
        lab = Lab(folder, proxy, ("near", *("supervised",) * supervised, "far"), disk=disk)
        servers = (lab.database, lab.broker)
        policy = RestartPolicy(forks, folder, tuple(lab.services.values()), servers)
        stack.callback(policy.stop)
        policy.start()
        lab.wait()
        yield lab


@contextmanager
def working_folder(asked: Path | None = None) -> Iterator[Path]:
    """Create the folder of a lab; a temporary one by default."""
    with ExitStack() as stack:
        if asked is None:
            made = tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True)
            asked = Path(stack.enter_context(made))
        asked.mkdir(parents=True, exist_ok=True)
        asked.chmod(0o755)  # Postgres runs under another account
        yield asked.resolve()


def inherited() -> dict[str, str]:
    """Return the environment without settings of another lab."""
    kept = {name: text for name, text in inherited_environment().items() if "MODNORM" not in name}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
