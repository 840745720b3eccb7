"""The aggregator as a process: `python -m modnorm.services.aggregator.server`.

It wires stores, background work and servicers around one database.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

import grpc.aio
from prometheus_client import CollectorRegistry
from typing_extensions import override

from modnorm.errors import ConflictError, UnavailableError
from modnorm.sandbox import Runner
from modnorm.services.aggregator.api import experiment_servicer, job_servicer
from modnorm.services.aggregator.api.experiment_servicer import ExperimentServicer
from modnorm.services.aggregator.api.job_servicer import JobServicer
from modnorm.services.aggregator.experiments.admission import Admissions
from modnorm.services.aggregator.experiments.experiment_setup import Conductor
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.experiments.run_directories import RunDirectories
from modnorm.services.aggregator.experiments.upstream_services import Calibrator, Sampler
from modnorm.services.aggregator.jobs.job_store import JobStore
from modnorm.services.aggregator.jobs.reaper import Reaper
from modnorm.services.aggregator.lab_status import LabCountStore, LabStatusServicer, Workers
from modnorm.services.aggregator.metrics import AggregatorMetrics, LabCollector
from modnorm.services.aggregator.notifications import Announcer, Notifier
from modnorm.services.aggregator.storage.database import Database, OnFault
from modnorm.services.aggregator.storage.evaluation_cache import EvaluationCache
from modnorm.services.aggregator.storage.sole_process import SoleProcess
from modnorm.services.common.background import ShieldedTasks
from modnorm.services.common.channels import open_service_channel
from modnorm.services.common.queue import make_celery
from modnorm.services.common.server import GrpcService
from modnorm.services.common.service_process import read_settings, run_service
from modnorm.services.common.settings import AggregatorSettings
from modnorm.services.common.status_servicer import SERVICE as STATUS
from modnorm.v1 import evaluation_pb2, evaluation_pb2_grpc, experiment_pb2_grpc, status_pb2_grpc
from modnorm.wire.remote_sandbox import sandbox_at

if TYPE_CHECKING:
    from modnorm.services.aggregator.web.page_server import PageServer

ANSWER_SECONDS = 30.0
"""A database that does not answer for this long is reported as down."""

logger = logging.getLogger(__name__)


class Aggregator(GrpcService):
    """The aggregator, the only service that uses the database; made inside its event loop."""

    _page: "PageServer | None" = None

    def __init__(  # noqa: PLR0913 - its parts
        self,
        settings: AggregatorSettings,
        sandbox: Runner | None = None,
        registry: CollectorRegistry | None = None,
        *,
        engines: Collection[str] | None = None,
        on_fault: OnFault | None = None,
        on_create: Callable[[evaluation_pb2.Job], None] | None = None,
        evaluations: EvaluationCache | None = None,
    ) -> None:
        self._registry = registry or CollectorRegistry()
        super().__init__(settings, self._register, self._registry)
        self._settings = settings
        self._app = make_celery(settings.broker_url)
        self._metrics = AggregatorMetrics(self._registry)
        self._sole = SoleProcess(settings.database_url)
        self._database = Database(
            settings.database_url, on_fault=on_fault, evaluations=evaluations
        )
        self._experiment_store = experiments = ExperimentStore(self._database)
        self._job_store = jobs = JobStore(self._database, lease_seconds=settings.lease_seconds)
        self._runs = RunDirectories(settings.runs, self._database)
        self._counts = LabCountStore(self._database, lease_seconds=settings.lease_seconds)
        self._workers = Workers()
        self._tasks = ShieldedTasks()
        self._notifier = Notifier()
        self._announcer = Announcer(self._app, self._metrics)
        targets = {"calibrator": settings.calibrator_target, "sampler": settings.sampler_target}
        if settings.sandbox_target:
            targets["sandbox"] = settings.sandbox_target
        self._channels = {
            name: open_service_channel(target, settings) for name, target in targets.items()
        }
        sampler = Sampler(self._channels["sampler"], settings)
        calibrator = Calibrator(self._channels["calibrator"], settings)
        self._admissions = Admissions(
            sampler,
            calibrator,
            settings,
            sandbox or sandbox_at(settings.sandbox_target, settings),
            engines,
        )
        self._conductor = Conductor(
            experiments,
            sampler,
            calibrator,
            self._follow_up,
            timed=self._metrics.step,
            retry_seconds=settings.retry_seconds,
            outage_seconds=settings.outage_seconds,
        )
        self._experiments = ExperimentServicer(
            experiments=experiments,
            runs=self._runs,
            admissions=self._admissions,
            conductor=self._conductor,
            notifier=self._notifier,
            follow_up=self._follow_up,
            tasks=self._tasks,
            on_create=on_create,
        )
        self._jobs = JobServicer(
            jobs, experiments, self._follow_up, self._metrics, self._workers, self._tasks
        )
        self._status = LabStatusServicer(
            self._counts, self._app, self._channels, settings, self._workers
        )
        self._reaper = Reaper(jobs, self._follow_up, self._metrics, pause=settings.reap_seconds)
        if settings.page_address:
            from modnorm.services.aggregator.web.lab_catalog import LabCatalog  # noqa: PLC0415
            from modnorm.services.aggregator.web.page_server import PageServer  # noqa: PLC0415 - slow imports

            self._page = PageServer(settings, LabCatalog(self._database, self._runs))
        self._background: list[asyncio.Task[None]] = []

    @override
    async def start(self) -> None:
        """Lock the database, migrate its schema, start the server, resume the work."""
        await asyncio.to_thread(self._sole.take)
        await asyncio.to_thread(self._database.migrate)
        if self._settings.release_leases_on_start:
            await asyncio.to_thread(self._job_store.release_all)
        self._registry.register(LabCollector(self._counts))
        await super().start()
        settings = self._settings
        if self._page is not None:
            self._page.start()
        self._background = [
            asyncio.create_task(work)
            for work in (
                _repeat(self._announcer.run, settings.reap_seconds),
                _repeat(self._conductor.drive_all, settings.conduct_seconds),
                _repeat(self._reap, settings.reap_seconds),
                _repeat(self._stay_alone, settings.reap_seconds),
            )
        ]

    @override
    async def stop(self) -> None:
        """Refuse new calls, finish those in progress, and close all parts."""
        await super().stop()
        await self._tasks.settle()
        for part in (self._admissions, self._experiments, self._jobs):
            part.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._conductor.stop()
        for channel in self._channels.values():
            await channel.close(None)
        if self._page is not None:
            await asyncio.to_thread(self._page.stop)
        await asyncio.to_thread(self._database.close)
        await asyncio.to_thread(self._sole.release)

    def _follow_up(self, change: Change) -> None:
        """Announce the jobs of a change and wake its watchers; called in the event loop."""
        if change.pending:
            self._announcer.announce()
        self._notifier.notify(change.experiment_id)

    def _register(self, server: grpc.aio.Server) -> Sequence[str]:
        experiment_pb2_grpc.add_ExperimentServiceServicer_to_server(self._experiments, server)
        evaluation_pb2_grpc.add_JobServiceServicer_to_server(self._jobs, server)
        status_pb2_grpc.add_StatusServiceServicer_to_server(self._status, server)
        return experiment_servicer.SERVICE, job_servicer.SERVICE, STATUS

    async def _stay_alone(self) -> None:
        """End this process once another aggregator uses the database."""
        try:
            await asyncio.to_thread(self._sole.keep)
        except ConflictError as error:
            logger.critical("ends: %s", error)
            signal.raise_signal(signal.SIGTERM)

    async def _reap(self) -> None:
        """End expired leases; report NOT_SERVING while the database does not answer in time."""
        reaping = asyncio.ensure_future(self._reaper.reap())
        try:
            if not (await asyncio.wait({reaping}, timeout=ANSWER_SECONDS))[0]:
                logger.warning("the database has not answered for %g s", ANSWER_SECONDS)
                await self.set_serving(serving=False)
            await reaping
        except UnavailableError:
            await self.set_serving(serving=False)
            raise
        finally:
            reaping.cancel()
        await self.set_serving(serving=True)
        self._metrics.deviating_workers.set(len(self._workers.canaries.deviations()))


async def _repeat(action: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Repeat an action until cancelled, even after errors."""
    while True:
        try:
            await action()
        except UnavailableError as error:
            logger.warning("postponed: %s", error)
        except Exception:
            logger.exception("background work failed")
        await asyncio.sleep(seconds)


def main() -> None:
    settings = read_settings(AggregatorSettings)
    run_service(settings, lambda registry: Aggregator(settings, registry=registry))


if __name__ == "__main__":
    main()
