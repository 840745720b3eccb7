"""The services of a lab as separate processes inside a context."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from modnorm.services.common.healthcheck import check
from modnorm.services.common.settings import inherited_environment
from verification.labs.servers import free_port
from verification.labs.waiting import wait_until

DATABASE = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
"""Settings of the database for the load; the others have defaults."""
STOP_SECONDS = 60.0
"""Time that a service has to stop, after which it is killed and the benchmark fails."""


@contextmanager
def service(
    name: str,
    settings: Mapping[str, object],
    *,
    program: str = "server",
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[str, int]]:
    """Run a service of the lab; yield its HOST:PORT and process id.

    Args:
        name: `aggregator`, `evaluator` or `sampler`.
        settings: Its settings, without the prefix of the variables.
        program: The module of the service that is run.
        variables: Further environment variables.
    """
    target = f"127.0.0.1:{free_port()}"
    named = {f"MODNORM_{key.upper()}": str(value) for key, value in settings.items()}
    environment = {**inherited_environment(), **variables, **named, "MODNORM_BIND_ADDRESS": target}
    with tempfile.NamedTemporaryFile(prefix=f"{name}-", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", f"modnorm.services.{name}.{program}"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(
                lambda: process.poll() is not None or check(target) == "SERVING", f"{name} serves"
            )
            if process.poll() is not None:
                raise SystemExit(f"the {name} does not start:\n{Path(log.name).read_text()}")
            yield target, process.pid
        finally:
            process.terminate()
            try:
                process.wait(timeout=STOP_SECONDS)
            finally:
                process.kill()
                process.wait()
            _show_warnings(Path(log.name))


def _show_warnings(log: Path) -> None:
    """Print the first warnings that a service logged."""
    problems = [line for line in log.read_text().splitlines() if '"warning"' in line]
    print(*problems[:5], sep="\n", end="\n" if problems else "", file=sys.stderr)
