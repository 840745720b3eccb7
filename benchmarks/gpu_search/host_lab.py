"""A lab on one host: broker, sampler, aggregator, and evaluators under a supervisor."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.control_plane.service_processes import DATABASE, service
from benchmarks.gpu_search.child_processes import QUIET
from verification.labs.servers import broker, database


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
        self._common = {"cache_dir": plan.folder / "cache", "model_roots": plan.models}
        self._broker_url = stack.enter_context(broker(plan.redis)).url
        sampler, _ = stack.enter_context(service("sampler", self._common))
        settings = {
            **self._common,
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
        settings = {
            **self._common,
            "devices": ",".join(map(str, range(gpus))),
            "engines_per_gpu": engines,
            "mps": "on" if engines > 1 else "off",
            "aggregator_target": self.target,
            "broker_url": self._broker_url,
            "worker_name": "gpu",
        }
        with service("evaluator", settings, program="supervisor", variables=QUIET):
            yield

    def _database(self) -> str:
        if not self._plan.postgres:
            return f"sqlite:///{self._plan.folder / 'lab.db'}"
        return self._stack.enter_context(database(DATABASE)).url


@contextmanager
def running_lab(plan: LabPlan) -> Iterator[HostLab]:
    """Run a lab without evaluators inside the context."""
    with ExitStack() as stack:
        yield HostLab(plan, stack)
