"""The lab of chaos tests: real processes, Postgres and Redis, connected through proxies."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from modnorm.services.common.healthcheck import check
from modnorm.services.common.settings import inherited_environment
from verification.chaos.host import Namespace, namespace, small_disk
from verification.chaos.proxy import Proxy
from verification.chaos.restarted_services import RestartPolicy, Service
from verification.labs.clock import set_offset
from verification.labs.forked import ForkServer
from verification.labs.servers import USER, Broker, Database, free_port, owned
from verification.labs.waiting import wait_until

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
    """All parts of a lab.

    Attributes:
        server: HOST:PORT of the aggregator, for clients.
        database: Postgres.
        broker: Redis.
        proxy: The links between services.
        services: Services by name.
        workers: Names of the evaluators.
        far: The namespace of the evaluator `far`; None without the permission.
        disk: Whether the lab's files are on a small disk.
        state: Folder of the lab's files.
        clock: File with the offset of the aggregator's time of day.
        errors: Errors that are not visible later.
    """

    server: str
    database: Database
    broker: Broker
    proxy: Proxy
    services: dict[str, Service]
    workers: tuple[str, ...]
    far: Namespace | None
    disk: bool
    state: Path
    clock: Path
    addresses: dict[str, str]
    errors: list[str] = field(default_factory=list)

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
        """Wait until all services answer.

        Raises:
            TimeoutError: a service does not answer in time.
        """
        self.database.wait()
        self.broker.wait()
        for name, address in self.addresses.items():
            wait_until(partial(_serves, address), f"{name} serves")
        for name in self.workers:
            wait_until(partial(self._lives, name), f"{name} runs")

    def kill(self, name: str) -> None:
        """Kill a service and its child processes."""
        self.services[name].signal(signal.SIGKILL)

    def _lives(self, name: str) -> bool:
        return self.services[name].alive


def _serves(address: str) -> bool:
    return check(address) == "SERVING"


@contextmanager
def open_lab(forks: ForkServer, folder: Path, *, supervised: bool = True) -> Iterator[Lab]:
    """Run a lab until the context ends.

    Args:
        forks: Starts its services.
        folder: Folder of its files and logs.
        supervised: Whether a third evaluator runs under a supervisor, as on a host with GPUs.
    """
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
