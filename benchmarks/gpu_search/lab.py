"""A lab on one host: broker, sampler, aggregator, and an evaluator process for each GPU."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.control_plane.servers import broker, free_port, postgres, service
from benchmarks.gpu_search.processes import environment
from services.common.healthcheck import check

START_SECONDS = 300.0
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """What a lab is made of.

    Attributes:
        folder: Where it works.
        models: Directory under which models lie.
        redis: Folder of `redis-server`; on PATH when None.
        postgres: Whether results go to Postgres; to an SQLite file otherwise.
    """

    folder: Path
    models: Path
    redis: Path | None
    postgres: bool


class Lab:
    """Servers that run, and evaluators that are added one by one.

    Args:
        plan: What it is made of.
        stack: Ends everything.
    """

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        self._plan = plan
        self._stack = stack
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        common = {"cache_dir": plan.folder / "cache", "model_roots": plan.models}
        self._broker_url, _ = stack.enter_context(broker(plan.redis))
        sampler, _ = stack.enter_context(service("sampler", common))
        settings = {
            **common,
            "database_url": self._database(),
            "broker_url": self._broker_url,
            "sampler_target": sampler,
        }
        self.target, _ = stack.enter_context(service("aggregator", settings))

    @property
    def workers(self) -> Sequence[str]:
        """Names of the evaluators."""
        return tuple(self._workers)

    def add_evaluator(self) -> None:
        """Start one more evaluator, on the next GPU."""
        device = str(len(self._workers))
        name, address = f"gpu{device}", f"127.0.0.1:{free_port()}"
        variables = {
            "CUDA_VISIBLE_DEVICES": device,
            "MODNORM_BIND_ADDRESS": address,
            "MODNORM_AGGREGATOR_TARGET": self.target,
            "MODNORM_BROKER_URL": self._broker_url,
            "MODNORM_WORKER_NAME": name,
            "MODNORM_MODEL_ROOTS": str(self._plan.models),
            "MODNORM_CACHE_DIR": str(self._plan.folder / "cache"),
        }
        log = self._stack.enter_context((self._plan.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-m", "services.evaluator.server"],
            env=environment(variables),
            stdout=log,
            stderr=log,
        )
        self._stack.callback(_end, process)
        self._workers[name] = process
        self._await(name, address)

    def require_workers(self) -> None:
        """See that no evaluator has ended.

        Raises:
            SystemExit: one has.
        """
        for name, process in self._workers.items():
            if process.poll() is not None:
                raise SystemExit(f"{name} has ended:\n{self._said(name)}")

    def _await(self, name: str, address: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while check(address) != "SERVING":
            self.require_workers()
            if time.monotonic() > deadline:
                raise SystemExit(f"{name} does not start:\n{self._said(name)}")
            time.sleep(0.2)

    def _database(self) -> str:
        if not self._plan.postgres:
            return f"sqlite:///{self._plan.folder / 'lab.db'}"
        url, _ = self._stack.enter_context(postgres(None))
        return url

    def _said(self, name: str) -> str:
        return (self._plan.folder / f"{name}.log").read_text(errors="replace")[-3000:]


@contextmanager
def running_lab(plan: Plan) -> Iterator[Lab]:
    """Run a lab without evaluators until the context ends."""
    with ExitStack() as stack:
        yield Lab(plan, stack)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
