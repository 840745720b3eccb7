"""Real servers for the tests that need them: one Postgres and one Redis a worker process."""

import asyncio
import inspect
import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

# anyio imports functions at their first use, and pytest parses its modules anew. In a server's
# thread that fails at times: Python 3.11 counts the depth of all threads' syntax trees together.
from anyio import open_file  # noqa: F401 - imported in this thread
from hypothesis import settings

from modnorm.host import exempt_loopback
from verification.labs import servers
from verification.labs.waiting import HANG_SECONDS

# Triton decides when it is imported, which torch may do anywhere, whether its interpreter runs
# kernels: on machines without a GPU it must.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
# What the shell has for a lab of its own is none of the tests' business, nor of their processes'.
for name in [name for name in os.environ if name.startswith(("MODNORM_", "OTEL_"))]:
    del os.environ[name]
exempt_loopback()
# An example's time depends on the host's load.
settings.register_profile("modnorm", deadline=None)
settings.load_profile("modnorm")

EXPORT, PLOTS = "modnorm.analysis.export", "modnorm.analysis.plots"
pytest_plugins = ["tests.forked_commands", "tests.garbage", "tests.scripted_services"]


@pytest.fixture(scope="module")
def on_cpu() -> Iterator[None]:
    """Let torch see no GPU: figures are compared to those of a CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: False)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in an event loop of its own.

    anyio's plugin fails tests for errors that gRPC's poller logs on a closed loop.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(_within_limit(pyfuncitem.obj(**arguments)))
    return True


async def _within_limit(test: Coroutine[object, object, None]) -> None:
    """Run a test; one that hangs fails, and the stacks of its tasks are in its output."""
    asyncio.get_running_loop().call_later(HANG_SECONDS, _print_tasks)
    async with asyncio.timeout(HANG_SECONDS + 1):
        await test


def _print_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack()


@pytest.fixture(scope="session", autouse=True)
def _without_plots() -> Iterator[None]:
    """Write runs without their plots, which take most of the time; see `with_plots`."""
    with pytest.MonkeyPatch.context() as patch:
        if EXPORT in sys.modules:
            patch.setattr(f"{EXPORT}.draw_plots", lambda _data: {})
        yield


@pytest.fixture
def with_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write runs with their plots."""
    monkeypatch.setattr(f"{EXPORT}.draw_plots", sys.modules[PLOTS].draw_plots)


@pytest.fixture
def postgres_url(_postgres: str) -> str:
    """An empty Postgres database, the only one: a new one takes ten times as long to make."""
    url = f"{_postgres}/postgres"
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
    return url


@pytest.fixture
def redis_url(_redis: servers.Broker) -> str:
    """An empty Redis database."""
    with closing(_redis.connect()) as client:
        client.flushall()
    return _redis.url


@pytest.fixture(scope="session")
def _postgres() -> Iterator[str]:
    with _installed(), servers.database(servers.HASTY) as database:
        yield database.server_url


@pytest.fixture(scope="session")
def _redis() -> Iterator[servers.Broker]:
    with _installed(), servers.broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all worker processes of a test session share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def _installed() -> Iterator[None]:
    """Fail in one line where a server program is missing."""
    try:
        yield
    except servers.MissingServerError as missing:
        pytest.fail(f"{missing}, which `make test` does", pytrace=False)
