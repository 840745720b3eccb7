"""The lab of chaos tests: real processes, Postgres and Redis, connected through proxies.

Ended processes are restarted. As root, one evaluator has a network namespace, and the lab's files
are on a small disk.
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tenacity import retry, stop_after_attempt, wait_fixed

from modnorm.services.common.healthcheck import check
from modnorm.services.common.settings import inherited_environment
from verification.chaos.proxy import Proxy
from verification.labs.fork_server import Launch, set_offset
from verification.labs.forked import ForkServer, Process
from verification.labs.servers import USER, Broker, Database, Server, free_port, owned
from verification.labs.waiting import wait_until

BALLAST = "ballast"
_CHUNK = 256 * 1024


@dataclass(frozen=True)
class Namespace:
    """A network namespace joined to this one by a pair of virtual Ethernet devices."""

    path: str
    here: str
    device: str

    def cut(self) -> None:
        """Drop every packet silently in both directions."""
        _ip("link", "set", self.device, "down")

    def join(self) -> None:
        """Pass packets again."""
        _ip("link", "set", self.device, "up")


@contextmanager
def namespace() -> Iterator[Namespace | None]:
    """Create a network namespace; yield None without the permission."""
    name, block = f"mn{os.getpid()}", os.getpid() % 16_000
    ours, theirs = f"{name}a", f"{name}b"
    # The block for network benchmarks (RFC 2544), which no real network uses.
    prefix = f"198.{18 + block // 8192}.{block // 32 % 256}."
    here, there = (f"{prefix}{block % 32 * 8 + last}" for last in (1, 2))
    try:
        # Processes that make the first namespace at once disturb each other's mount.
        retry(stop=stop_after_attempt(3), wait=wait_fixed(0.2), reraise=True)(_ip)(
            "netns", "add", name
        )
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _ip("addr", "add", f"{here}/30", "dev", ours)
        _ip("link", "set", ours, "up")
        _ip("-n", name, "addr", "add", f"{there}/30", "dev", theirs)
        _ip("-n", name, "link", "set", theirs, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield Namespace(f"/run/netns/{name}", here, ours)
    finally:
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", ours)
        _ip("netns", "del", name)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[bool]:
    """Mount a small file system on a directory; yield False without the permission."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _run(("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=755", "tmpfs", str(folder)))
    except (OSError, subprocess.CalledProcessError):
        yield False
        return
    try:
        yield True
    finally:
        _run(("umount", "--lazy", str(folder)))


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


def _ip(*arguments: str) -> None:
    _run(("ip", *arguments))


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


RESTART_SECONDS = 0.5
"""Pause before a restart, as in a restart policy."""
_LOOK_SECONDS = 0.1
_STOP_SECONDS = 15.0


@dataclass
class Service:
    """One service, a process that a restart policy keeps running."""

    name: str
    """Its name, also in leases."""
    module: str
    environment: Mapping[str, str]
    clock: Path | None = None
    """File with the offset of its time of day."""
    namespace: str = ""
    """Network namespace; empty for the default one."""
    process: Process | None = None
    starts: int = 0

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
                again = partial(service.launch, self._forks, self._logs)
                self._revive(service, found_dead, again)
            for server in self._servers:
                self._revive(server, found_dead, server.start)

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


LEASE_SECONDS = 3.0
REAP_SECONDS = 0.5
DISK_MEBIBYTES = 128
_MODULES = {"supervised": "modnorm.services.evaluator.supervisor"}
"""The modules of processes whose name is not that of their service."""
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


@dataclass
class Lab:
    """All parts of a lab."""

    server: str
    """HOST:PORT of the aggregator, for clients."""
    database: Database
    broker: Broker
    proxy: Proxy
    services: dict[str, Service]
    workers: tuple[str, ...]
    far: Namespace | None
    """The namespace of the evaluator `far`; None without the permission."""
    disk: bool
    """Whether the lab's files are on a small disk."""
    state: Path
    """Folder of the lab's files."""
    clock: Path
    """File with the offset of the aggregator's time of day."""
    addresses: dict[str, str]
    errors: list[str] = field(default_factory=list)
    """Errors that are not visible later."""

    @property
    def cache(self) -> Path:
        """Folder of profiles and scale maps."""
        return self.state / "cache"

    def forget(self) -> None:
        """Delete profiles and scale maps."""
        shutil.rmtree(self.cache, ignore_errors=True)
        self.cache.mkdir(mode=0o777)

    def move_clock(self, seconds: float) -> None:
        """Set the offset of the aggregator's time of day."""
        set_offset(self.clock, seconds)

    def wait(self) -> None:
        """Wait until all services answer."""
        self.database.wait()
        self.broker.wait()
        for name, address in self.addresses.items():
            wait_until(partial(_serves, address), f"{name} serves")
        for name in self.workers:
            wait_until(partial(_lives, self.services[name]), f"{name} runs")

    def kill(self, name: str) -> None:
        """Kill a service and its child processes."""
        self.services[name].signal(signal.SIGKILL)


def _serves(address: str) -> bool:
    return check(address) == "SERVING"


def _lives(service: Service) -> bool:
    return service.alive


@contextmanager
def open_lab(forks: ForkServer, folder: Path, *, supervised: bool = True) -> Iterator[Lab]:
    """Run a lab inside the context; if supervised, with an evaluator as on a host with GPUs."""
    state = folder / "state"
    with ExitStack() as stack:
        far = stack.enter_context(namespace())
        disk = stack.enter_context(small_disk(state, DISK_MEBIBYTES))
        proxy = stack.enter_context(Proxy())
        database = Database(owned(state / "postgres"), folder / "postgres.log", SMALL_WAL)
        database.create("--wal-segsize=1")
        broker = Broker(owned(state / "redis"), folder / "redis.log")
        plan = _Plan(folder, database, broker, proxy, far)
        workers = ("near", *("supervised",) * supervised, "far")
        services = plan.services(workers)
        lab = Lab(
            server=plan.addresses["aggregator"],
            database=database,
            broker=broker,
            proxy=proxy,
            services={service.name: service for service in services},
            workers=workers,
            far=far,
            disk=disk,
            state=state,
            clock=plan.clock,
            addresses=plan.addresses,
        )
        lab.forget()
        policy = RestartPolicy(forks, folder, services, (database, broker))
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


class _Plan:
    """Addresses, links and environments of the services of a lab."""

    def __init__(
        self, folder: Path, database: Database, broker: Broker, proxy: Proxy, far: Namespace | None
    ) -> None:
        self._folder = folder
        self._database = database
        self._broker = broker
        self._proxy = proxy
        self._far = far
        self.clock = folder / "clock"
        set_offset(self.clock, 0.0)
        self.addresses = {
            name: f"127.0.0.1:{free_port()}" for name in ("calibrator", "sampler", "aggregator")
        }

    def services(self, workers: Sequence[str]) -> list[Service]:
        """Return all services, not yet started."""
        return [
            self._service("calibrator", {}),
            self._service("sampler", {}),
            self._aggregator(),
            *(self._worker(name) for name in workers),
        ]

    def _service(self, name: str, changes: Mapping[str, str]) -> Service:
        own = {
            "MODNORM_BIND_ADDRESS": self.addresses[name],
            "MODNORM_CACHE_DIR": str(self._folder / "state" / "cache"),
        }
        module = _MODULES.get(name, f"modnorm.services.{name}.server")
        return Service(name, module, {**inherited(), **_PACE, **own, **changes})

    def _aggregator(self) -> Service:
        """Return the aggregator, whose clock can be moved."""
        link = self._link
        database = link("aggregator-database", self._database.target)
        changes = {
            "MODNORM_DATABASE_URL": f"postgresql://{USER}@{database}/postgres",
            "MODNORM_BROKER_URL": f"redis://{link('aggregator-broker', self._broker.target)}/0",
        }
        for name in ("calibrator", "sampler"):
            target = link(f"aggregator-{name}", self.addresses[name])
            changes[f"MODNORM_{name.upper()}_TARGET"] = target
        service = self._service("aggregator", changes)
        service.clock = self.clock
        return service

    def _worker(self, name: str) -> Service:
        outside = self._far is not None and name == "far"
        host = self._far.here if self._far is not None and outside else "127.0.0.1"
        aggregator = self._link(f"{name}-aggregator", self.addresses["aggregator"], host)
        broker = self._link(f"{name}-broker", self._broker.target, host)
        own = {
            "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
            "MODNORM_AGGREGATOR_TARGET": aggregator,
            "MODNORM_BROKER_URL": f"redis://{broker}/0",
            "MODNORM_WORKER_NAME": name,
            "MODNORM_CACHE_DIR": str(self._folder / name),
        }
        module = _MODULES.get(name, "modnorm.services.evaluator.server")
        space = self._far.path if self._far is not None and outside else ""
        environment = {**inherited(), **_PACE, **own}
        return Service(name, module, environment, namespace=space)

    def _link(self, name: str, target: str, host: str = "127.0.0.1") -> str:
        return self._proxy.add(name, target, host).address


def inherited() -> dict[str, str]:
    """Return the environment without settings of another lab."""
    kept = {name: text for name, text in inherited_environment().items() if "MODNORM" not in name}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
