"""A lab on one host: broker, sampler, aggregator, and evaluators under a supervisor."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.control_plane.service_processes import DATABASE, service
from benchmarks.gpu_search.child_processes import QUIET
from services.common.healthcheck import check
from services.common.settings import inherited_environment
from verification.labs.servers import broker, database, free_port

START_SECONDS = 300.0
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class LabPlan:
    """Configuration of a lab.

    Attributes:
        folder: Folder of its files.
        models: Directory of the models.
        redis: Folder of `redis-server`; None for PATH.
        postgres: Whether results go to Postgres; otherwise to an SQLite file.
    """

    folder: Path
    models: Path
    redis: Path | None
    postgres: bool


class HostLab:
    """Running servers."""

    def __init__(self, plan: LabPlan, stack: ExitStack) -> None:
        self._plan = plan
        self._stack = stack
        common = {"cache_dir": plan.folder / "cache", "model_roots": plan.models}
        self._broker_url = stack.enter_context(broker(plan.redis)).url
        sampler, _ = stack.enter_context(service("sampler", common))
        settings = {
            **common,
            "database_url": self._database(),
            "broker_url": self._broker_url,
            "sampler_target": sampler,
        }
        self.target, _ = stack.enter_context(service("aggregator", settings))

    @contextmanager
    def evaluators(self, gpus: int, engines: int) -> Iterator[None]:
        """Run a host's evaluators inside the context.

        Several engines of a GPU share it under MPS.
        """
        address = f"127.0.0.1:{free_port()}"
        variables = {
            **QUIET,
            "MODNORM_DEVICES": ",".join(map(str, range(gpus))),
            "MODNORM_ENGINES_PER_GPU": str(engines),
            "MODNORM_MPS": "on" if engines > 1 else "off",
            "MODNORM_BIND_ADDRESS": address,
            "MODNORM_AGGREGATOR_TARGET": self.target,
            "MODNORM_BROKER_URL": self._broker_url,
            "MODNORM_WORKER_NAME": "gpu",
            "MODNORM_MODEL_ROOTS": str(self._plan.models),
            "MODNORM_CACHE_DIR": str(self._plan.folder / "cache"),
        }
        path = self._plan.folder / "evaluators.log"
        with path.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "services.evaluator.supervisor"],
                env={**inherited_environment(), **variables},
                stdout=log,
                stderr=log,
            )
        try:
            _await(process, address, path)
            yield
        finally:
            _end(process)

    def _database(self) -> str:
        if not self._plan.postgres:
            return f"sqlite:///{self._plan.folder / 'lab.db'}"
        return self._stack.enter_context(database(DATABASE)).url


@contextmanager
def running_lab(plan: LabPlan) -> Iterator[HostLab]:
    """Run a lab without evaluators inside the context."""
    with ExitStack() as stack:
        yield HostLab(plan, stack)


def _await(process: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while check(address) != "SERVING":
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(
                f"evaluators do not start:\n{log.read_text(errors='replace')[-3000:]}"
            )
        time.sleep(0.2)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Terminate a process; kill it after a timeout."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
