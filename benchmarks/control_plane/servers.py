"""The servers of a lab, each in a process of its own, until a context ends."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import psycopg
import redis

from modnorm.v1.status_pb2 import GetStatusRequest
from modnorm.v1.status_pb2_grpc import StatusServiceStub
from services.common.settings import inherited_environment

START_SECONDS = 60.0


@contextmanager
def postgres(folder: Path | None) -> Iterator[tuple[str, int]]:
    """Run Postgres as it is delivered: commits are on the disk before they are answered.

    Args:
        folder: Where `initdb` and `postgres` are; the newest installed when None.

    Yields:
        The URL of a database, and the id of the process.
    """
    with _directory() as root:
        data, port = root / "data", free_port()
        command = [_program("initdb", folder), "-D", data, "-U", "modnorm", "-A", "trust", "-N"]
        subprocess.run(
            [*map(str, command), "-E", "UTF8", "--no-locale"],
            check=True,
            cwd="/",
            user=_account(),
            stdout=subprocess.DEVNULL,
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": root,
            "shared_buffers": "512MB",
            "max_wal_size": "4GB",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        command = [_program("postgres", folder), "-D", data, *options]
        url = f"postgresql://modnorm@127.0.0.1:{port}/postgres"
        with _process(command, root / "log", lambda: _connects(url), user=_account()) as pid:
            yield url, pid


@contextmanager
def broker(folder: Path | None = None) -> Iterator[tuple[str, int]]:
    """Run Redis as the lab does, with an append-only file; yield its URL and process.

    Args:
        folder: Where `redis-server` is; on PATH when None.
    """
    port = free_port()
    with _directory() as root:
        url = f"redis://127.0.0.1:{port}/0"
        command = [_program("redis-server", folder), "--port", port, "--bind", "127.0.0.1"]
        options = ["--appendonly", "yes", "--save", "", "--dir", root]
        with _process([*command, *options], root / "log", lambda: _pings(url)) as pid:
            yield url, pid


@contextmanager
def service(name: str, settings: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Run a service of the lab; yield its HOST:PORT and process.

    Args:
        name: `aggregator` or `sampler`.
        settings: Its settings, without the prefix of the variables.
    """
    target = f"127.0.0.1:{free_port()}"
    variables = {f"MODNORM_{key.upper()}": str(value) for key, value in settings.items()}
    variables["MODNORM_BIND_ADDRESS"] = target
    with _directory() as root:
        command = [sys.executable, "-m", f"services.{name}.server"]
        with _process(command, root / "log", lambda: _serves(target), variables) as pid:
            yield target, pid


def free_port() -> int:
    """Return a port that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _program(name: str, folder: Path | None) -> Path:
    folders = [folder] if folder else sorted(Path("/usr/lib/postgresql").glob("*/bin"))[::-1]
    path = os.pathsep.join([*map(str, folders), *os.get_exec_path(), os.defpath])
    found = shutil.which(name, path=path)
    if found is None:
        raise SystemExit(f"{name} is not installed: run scripts/ensure-servers")
    return Path(found)


def _account() -> str:
    """Return the account that Postgres runs under, which refuses to be root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="modnorm-", ignore_cleanup_errors=True) as name:
        if os.geteuid() == 0:
            shutil.chown(name, user=_account())
        yield Path(name)


@contextmanager
def _process(
    command: Sequence[object],
    log: Path,
    is_up: Callable[[], bool],
    variables: Mapping[str, str] | None = None,
    user: str | None = None,
) -> Iterator[int]:
    """Run a program until the end of the context; wait until it answers."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd="/" if user else None,
            user=user if os.geteuid() == 0 else None,
            env={**inherited_environment(), **(variables or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_up():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} does not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)
        problems = [line for line in log.read_text().splitlines() if '"warning"' in line]
        print(*problems[:5], sep="\n", end="\n" if problems else "", file=sys.stderr)


def _connects(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _pings(url: str) -> bool:
    with closing(redis.Redis.from_url(url)) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def _serves(target: str) -> bool:
    with grpc.insecure_channel(target) as channel:
        try:
            StatusServiceStub(channel).GetStatus(GetStatusRequest(), timeout=2)
        except grpc.RpcError:
            return False
    return True
