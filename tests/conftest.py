"""Real servers for the tests that need them: one Postgres and one Redis a session."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

# Triton decides when it is imported, which torch may do anywhere, whether its interpreter runs
# kernels: on machines without a GPU it must.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
# What the shell has for a lab of its own is none of the tests' business, nor of their processes'.
for name in [name for name in os.environ if name.startswith(("MODNORM_", "OTEL_"))]:
    del os.environ[name]

pytest_plugins = ["tests.scripted_services"]

REMEDY = "run scripts/ensure-servers, which `make test` does"
START_SECONDS = 60.0


@pytest.fixture
def postgres_url(_postgres: str) -> Iterator[str]:
    """An empty Postgres database of this test alone."""
    name = f"test_{uuid.uuid4().hex}"
    with closing(psycopg.connect(f"{_postgres}/postgres", autocommit=True)) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield f"{_postgres}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def redis_url(_redis: str) -> str:
    """An empty Redis database."""
    with closing(redis.Redis.from_url(_redis)) as client:
        client.flushall()
    return _redis


@pytest.fixture(scope="session")
def _postgres() -> Iterator[str]:
    initdb, server = _program("initdb"), _program("postgres")
    port = _free_port()
    with _directory() as root:
        data = root / "data"
        _run(
            [initdb, "-D", data, "-U", "modnorm", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": root,
            "fsync": "off",
            "full_page_writes": "off",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        url = f"postgresql://modnorm@127.0.0.1:{port}"
        with _server([server, "-D", data, *options], root / "log", lambda: _answers(url)):
            yield url


@pytest.fixture(scope="session")
def _redis() -> Iterator[str]:
    server = _program("redis-server", "valkey-server")
    port = _free_port()
    with _directory() as root:
        url = f"redis://127.0.0.1:{port}/0"
        command = [server, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", root]
        with _server(command, root / "log", lambda: _pings(url)):
            yield url


def _program(*names: str) -> Path:
    """Find a server program; its absence is a failure, not a reason to skip."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([*map(str, folders), *os.get_exec_path(), os.defpath])
    for name in names:
        if found := shutil.which(name, path=path):
            return Path(found)
    raise RuntimeError(f"{' or '.join(names)} is not installed: {REMEDY}")


def _account() -> str:
    """Return the account that servers run under: Postgres refuses to be root."""
    if os.geteuid() != 0:
        return getpass.getuser()
    accounts = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in accounts else "nobody"


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="modnorm-", ignore_cleanup_errors=True) as name:
        if os.geteuid() == 0:
            shutil.chown(name, user=_account())
        yield Path(name)


def _run(command: Sequence[object]) -> None:
    subprocess.run(
        [str(part) for part in command],
        check=True,
        cwd="/",
        user=_account() if os.geteuid() == 0 else None,
        stdout=subprocess.DEVNULL,
    )


@contextmanager
def _server(command: Sequence[object], log: Path, is_up: Callable[[], bool]) -> Iterator[None]:
    """Run a server until the end of the context; wait until it answers."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd="/",
            user=_account() if os.geteuid() == 0 else None,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_up():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(timeout=START_SECONDS)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(f"{url}/postgres", connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _pings(url: str) -> bool:
    with closing(redis.Redis.from_url(url)) as client:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
