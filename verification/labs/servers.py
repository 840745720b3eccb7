"""Launcher of Postgres and Redis for tests, verification and benchmarks."""

import getpass
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self

import psycopg
import redis

from verification.labs.waiting import HANG_SECONDS, wait_until

USER = "modnorm"
"""The owner of every database."""
HASTY: Mapping[str, object] = {"fsync": "off", "full_page_writes": "off"}
"""Settings of a database that need not survive a power failure."""


class MissingServerError(SystemExit):
    """A server program is not installed. Ends a command with the remedy."""


def free_port() -> int:
    """Return a free port below those that the system gives to other listeners meanwhile."""
    draw = random.SystemRandom()
    while True:
        port = draw.randrange(20_000, 32_000)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def find_program(*names: str) -> str:
    """Return the path of the first installed program, from Debian's folders or PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    path = os.pathsep.join([*map(str, debian), *os.get_exec_path(), os.defpath])
    for name in names:
        if program := shutil.which(name, path=path):
            return program
    raise MissingServerError(f"{' or '.join(names)} is not installed: run scripts/ensure-servers")


class Server:
    """A server program with its own directory."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """Signal that ends the server despite open connections, with consistent files."""

    def __init__(self, command: Sequence[object], folder: Path, log: Path) -> None:
        self._command = tuple(map(str, command))
        self._folder = folder
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process; 0 before the first start."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start the process; it may not answer yet."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                user=_account() if os.geteuid() == 0 else None,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def answers(self) -> bool:
        """Whether a client can connect."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until the server answers; restart it if it ends."""
        wait_until(self.answers, f"{self._command[0]} answers")

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends the process; wait for its end."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
            self._process.wait(HANG_SECONDS)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run the server inside the context."""
        self.start()
        try:
            wait_until(lambda: self.answers() or not self.alive, f"{self._command[0]} answers")
            if not self.alive:
                raise RuntimeError(f"{self._command[0]} ended:\n{self._log.read_text()}")
            yield self
        finally:
            self.end(self.stop_signal)


class Database(Server):
    """Postgres of the newest installed version, by default as durable as in production."""

    stop_signal = signal.SIGINT  # a fast shutdown: connections are closed

    def __init__(
        self, folder: Path, log: Path, settings: Mapping[str, object] | None = None
    ) -> None:
        port = free_port()
        self.target = f"127.0.0.1:{port}"
        self.server_url = f"postgresql://{USER}@{self.target}"
        self.url = f"{self.server_url}/postgres"
        self._initdb = find_program("initdb")
        own = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder}
        options = [f"--{name}={value}" for name, value in {**own, **(settings or {})}.items()]
        command = [find_program("postgres"), "-D", folder, *options]
        super().__init__(command, folder, log)

    def create(self, *options: str) -> None:
        """Create the files of an empty cluster."""
        subprocess.run(
            [
                *(self._initdb, "-D", str(self._folder), "-U", USER, "-A", "trust"),
                *("-E", "UTF8", "--no-locale", "--no-sync", *options),
            ],
            check=True,
            cwd=self._folder,
            user=_account() if os.geteuid() == 0 else None,
            stdout=subprocess.DEVNULL,
        )

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """Open a connection that commits every statement."""
        return psycopg.connect(self.url, autocommit=True, connect_timeout=5)

    def answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False


class Broker(Server):
    """Redis (or Valkey) with an append-only file, as in the deployment."""

    def __init__(self, folder: Path, log: Path) -> None:
        port = free_port()
        self.target = f"127.0.0.1:{port}"
        self.url = f"redis://{self.target}/0"
        command = [
            *(find_program("redis-server", "valkey-server"), "--port", port),
            *("--bind", "127.0.0.1", "--save", "", "--dir", folder),
            *("--appendonly", "yes", "--maxmemory-policy", "noeviction"),
        ]
        super().__init__(command, folder, log)

    def connect(self) -> "redis.Redis":
        return redis.Redis.from_url(self.url, socket_timeout=5)

    def answers(self) -> bool:
        with suppress(redis.RedisError), closing(self.connect()) as client:
            return bool(client.ping())
        return False


@contextmanager
def database(settings: Mapping[str, object] | None = None) -> Iterator[Database]:
    """Run Postgres with an empty cluster in a temporary directory inside the context."""
    with _folder() as folder:
        made = Database(owned(folder / "data"), folder / "log", settings)
        made.create()
        with made.running():
            yield made


@contextmanager
def broker() -> Iterator[Broker]:
    """Run an empty Redis in a temporary directory inside the context."""
    with _folder() as folder:
        made = Broker(owned(folder / "data"), folder / "log")
        with made.running():
            yield made


def owned(folder: Path) -> Path:
    """Create a directory that belongs to the account of the servers; return its path."""
    folder.mkdir(mode=0o700, parents=True)
    if os.geteuid() == 0:
        shutil.chown(folder, user=_account())
    return folder


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="modnorm-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # the servers run under another account
        yield Path(name)


def _account() -> str:
    """Return the account of the servers, since Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    accounts = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in accounts else "nobody"


def _version(folder: Path) -> tuple[int, ...]:
    """Return the version in `/usr/lib/postgresql/VERSION/bin`."""
    return tuple(int(part) for part in folder.parent.name.split(".") if part.isdigit())
