"""Postgres and Redis as a lab has them, to be killed and started again."""

import getpass
import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import redis

from verification.chaos.processes import wait_until

START_SECONDS = 60.0
USER = "modnorm"


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def account() -> str:
    """Return the account that servers run under: Postgres refuses to be root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    accounts = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in accounts else "nobody"


class Server:
    """A server program with its own directory.

    Args:
        command: What to run.
        folder: Where it works; owned by its account.
        log: File for what it says.
        answers: Tells whether it can be used.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, log: Path, answers: Callable[[], bool]
    ) -> None:
        self._command = tuple(command)
        self._folder = folder
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.answers = answers

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; it may not answer yet."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                user=account() if os.geteuid() == 0 else None,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until it answers."""
        wait_until(self.answers, f"{self._command[0]} answers", START_SECONDS)

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends it, and wait until it is gone."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
            self._process.wait(START_SECONDS)


class Database(Server):
    """Postgres, with the durability that production has.

    Its log is written in files of 1 MiB, so that a full disk is met within a schedule.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        port = free_port()
        self.target = f"127.0.0.1:{port}"
        self.url = f"postgresql://{USER}@{self.target}/postgres"
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "min_wal_size": "2MB",
            "max_wal_size": "8MB",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        command = [_program("postgres"), "-D", str(folder), *options]
        super().__init__(command, folder, log, self._connects)

    def create(self) -> None:
        """Make the files of an empty cluster."""
        subprocess.run(
            [
                *(_program("initdb"), "-D", str(self._folder), "-U", USER, "-A", "trust"),
                *("-E", "UTF8", "--no-locale", "--no-sync", "--wal-segsize=1"),
            ],
            check=True,
            cwd=self._folder,
            user=account() if os.geteuid() == 0 else None,
            stdout=subprocess.DEVNULL,
        )

    def connect(self) -> "psycopg.Connection[tuple[object, ...]]":
        """Open a connection that commits every statement."""
        return psycopg.connect(self.url, autocommit=True, connect_timeout=5)

    def _connects(self) -> bool:
        with suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False


class Broker(Server):
    """Redis with an append-only file, as in the deployment."""

    def __init__(self, folder: Path, log: Path) -> None:
        port = free_port()
        self.target = f"127.0.0.1:{port}"
        self.url = f"redis://{self.target}/0"
        command = [
            *(_program("redis-server", "valkey-server"), "--port", str(port)),
            *("--bind", "127.0.0.1", "--save", "", "--dir", str(folder)),
            *("--appendonly", "yes", "--maxmemory-policy", "noeviction"),
        ]
        super().__init__(command, folder, log, self._pings)

    def connect(self) -> "redis.Redis":
        """Open a connection."""
        return redis.Redis.from_url(self.url, socket_timeout=5)

    def _pings(self) -> bool:
        with suppress(redis.RedisError), closing(self.connect()) as client:
            return bool(client.ping())
        return False


def _program(*names: str) -> str:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([*map(str, folders), *os.get_exec_path(), os.defpath])
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    raise SystemExit(f"{' or '.join(names)} is not installed: run scripts/ensure-servers")
