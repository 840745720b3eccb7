"""The aggregator put together: stores, background work and servicers around one database."""

import asyncio
import logging
from collections.abc import Collection, Sequence

import grpc.aio
from celery import Celery
from prometheus_client import CollectorRegistry

from modnorm.errors import UnavailableError
from modnorm.sandbox import Runner
from modnorm.v1 import (
    evaluation_pb2_grpc,
    experiment_pb2_grpc,
    radius_pb2_grpc,
    status_pb2_grpc,
)
from modnorm.wire.remote_sandbox import sandbox_at
from services.aggregator import experiment_servicer, radius_servicer
from services.aggregator.admission import Admissions
from services.aggregator.api import job_servicer
from services.aggregator.api.job_servicer import JobServicer
from services.aggregator.background import Changes, Reaper, repeat
from services.aggregator.conductor import Conductor
from services.aggregator.database import Database
from services.aggregator.dispatcher import Dispatcher
from services.aggregator.experiment_servicer import ExperimentServicer
from services.aggregator.journey import Journey
from services.aggregator.metrics import AggregatorMetrics, LabCollector
from services.aggregator.notifier import Notifier
from services.aggregator.outages import OnFault
from services.aggregator.radius_servicer import RadiusServicer
from services.aggregator.status import LabStatusServicer, Workers
from services.aggregator.stores import (
    EventStore,
    ExperimentStore,
    JobStore,
    ResultStore,
    Stores,
)
from services.aggregator.stores.census import CensusStore
from services.aggregator.upstream import Calibrator, Sampler
from services.common.channels import open_channel
from services.common.metrics import CallMetrics
from services.common.queue import make_celery
from services.common.server import RunningServer, port_of, start_server
from services.common.settings import AggregatorSettings
from services.common.shielded_tasks import ShieldedTasks
from services.common.status_servicer import SERVICE as STATUS

ANSWER_SECONDS = 30.0
"""A database that does not answer for this long is as good as down, though nothing says so."""

logger = logging.getLogger(__name__)


class Aggregator:
    """The one service that touches the database. It lives in one event loop.

    Args:
        settings: Where everything is.
        app: The Celery application that jobs are published with.
        sandbox: Where evaluators run programs, looked at before such an experiment is accepted.
        registry: Where metrics go.
        engines: All engines that its evaluators have, where that is known.
        on_fault: Hears, in any thread, what is wrong with the file of its database.
    """

    def __init__(  # noqa: PLR0913 - what it is made of, and by keyword what embeds it
        self,
        settings: AggregatorSettings,
        app: Celery,
        sandbox: Runner | None,
        registry: CollectorRegistry,
        *,
        engines: Collection[str] | None,
        on_fault: OnFault | None,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._metrics = AggregatorMetrics(registry)
        self._calls = CallMetrics(registry)
        self._database = Database(settings.database_url, on_fault=on_fault)
        self._stores = Stores(
            ExperimentStore(self._database),
            JobStore(self._database, lease_seconds=settings.lease_seconds),
            ResultStore(self._database),
            EventStore(self._database),
        )
        shown = settings.credentials
        self._census = CensusStore(self._database, lease_seconds=settings.lease_seconds)
        self._workers = Workers()
        self._app = app
        self._channels = {
            "calibrator": open_channel(settings.calibrator_target, shown),
            "sampler": open_channel(settings.sampler_target, shown),
        }
        sampler = Sampler(self._channels["sampler"], shown)
        calibrator = Calibrator(self._channels["calibrator"], shown)
        if settings.sandbox_target:
            self._channels["sandbox"] = open_channel(settings.sandbox_target, shown)
        self._tasks = ShieldedTasks()
        self._notifier = Notifier()
        self._dispatcher = Dispatcher(app, self._stores.jobs, self._metrics)
        self._changes = Changes(self._notifier, self._dispatcher)
        folders = (
            settings.cache_dir / "data",
            *(settings.data_roots or ()),
            *(settings.split_folders or ()),
        )
        self._admissions = Admissions(
            sampler,
            calibrator,
            settings.data_roots,
            sandbox,
            split_folders=folders,
            engines=engines,
        )
        self._radii = RadiusServicer(self._admissions, calibrator)
        self._conductor = self._make_conductor(sampler, calibrator)
        self._experiments = ExperimentServicer(
            self._stores,
            admissions=self._admissions,
            conductor=self._conductor,
            notifier=self._notifier,
            watch_seconds=settings.watch_seconds,
            tasks=self._tasks,
        )
        self._reaper = Reaper(
            self._stores.jobs, self._changes, self._metrics, pause=settings.reap_seconds
        )
        self._jobs = JobServicer(
            self._stores,
            self._changes,
            self._metrics,
            self._workers,
            self._calls,
            self._tasks,
        )
        self._server: RunningServer | None = None
        self._background: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        return port_of(self._server)

    async def start(self) -> None:
        """Bring the schema up to date or check that it is; listen; take up unfinished work.

        Raises:
            UnavailableError: the database cannot be reached, or the address is taken.
            PreconditionError: the schema is another one, and others are to migrate it.
        """
        database = self._database
        migrates = self._settings.migrate_on_start
        await asyncio.to_thread(database.migrate if migrates else database.check_schema)
        if self._settings.release_leases_on_start:
            await asyncio.to_thread(self._stores.jobs.release_all)
        self._registry.register(LabCollector(self._census))
        settings = self._settings
        self._server = await start_server(
            settings.bind_address, self._register, self._registry, settings, self._calls
        )
        self._background = [
            asyncio.create_task(work)
            for work in (
                repeat(self._dispatcher.run, settings.reconcile_seconds),
                repeat(self._conductor.look, settings.conduct_seconds),
                repeat(self._reap, settings.reap_seconds),
                repeat(self._dispatcher.reconcile, settings.reconcile_seconds),
            )
        ]

    async def stop(self) -> None:
        """Refuse new calls, finish those in progress, and let go of everything.

        Jobs that are pending by then and not published yet are so by whoever reconciles next.
        """
        self._jobs.end_streams()
        if self._server is not None:
            await self._server.stop(self._settings.stop_grace)
        self._admissions.close()
        await self._tasks.settle()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._conductor.stop()
        for channel in self._channels.values():
            await channel.close(None)
        await asyncio.to_thread(self._jobs.close)
        await asyncio.to_thread(self._database.close)

    def _make_conductor(self, sampler: Sampler, calibrator: Calibrator) -> Conductor:
        journey = Journey(
            experiments=self._stores.experiments,
            jobs=self._stores.jobs,
            results=self._stores.results,
            sampler=sampler,
            calibrator=calibrator,
            changes=self._changes,
            metrics=self._metrics,
        )
        return Conductor(
            self._stores.experiments,
            journey,
            retry_seconds=self._settings.retry_seconds,
            outage_seconds=self._settings.outage_seconds,
        )

    def _register(self, server: grpc.aio.Server) -> Sequence[str]:
        experiment_pb2_grpc.add_ExperimentServiceServicer_to_server(self._experiments, server)
        evaluation_pb2_grpc.add_JobServiceServicer_to_server(self._jobs, server)
        radius_pb2_grpc.add_RadiusServiceServicer_to_server(self._radii, server)
        status_pb2_grpc.add_StatusServiceServicer_to_server(self._status(), server)
        return experiment_servicer.SERVICE, job_servicer.SERVICE, radius_servicer.SERVICE, STATUS

    def _status(self) -> LabStatusServicer:
        shown = self._settings.credentials
        return LabStatusServicer(self._census, self._app, self._channels, shown, self._workers)

    async def _reap(self) -> None:
        """End lost leases; say to health checks whether the database answers, and in time."""
        reaping = asyncio.ensure_future(self._reaper.reap())
        try:
            if not (await asyncio.wait({reaping}, timeout=ANSWER_SECONDS))[0]:
                logger.warning("the database has not answered for %g s", ANSWER_SECONDS)
                await self._set_serving(serving=False)
            await reaping
        except UnavailableError:
            await self._set_serving(serving=False)
            raise
        finally:
            reaping.cancel()
        await self._set_serving(serving=True)
        # Who has gone deviates no more; no report tells that.
        self._metrics.deviating_workers.set(len(self._workers.canaries.deviations()))

    async def _set_serving(self, *, serving: bool) -> None:
        if self._server is not None:
            await self._server.set_serving(serving=serving)


def build_aggregator(  # noqa: PLR0913 - what it is made of, and by keyword what embeds it
    settings: AggregatorSettings,
    app: Celery | None = None,
    sandbox: Runner | None = None,
    registry: CollectorRegistry | None = None,
    *,
    engines: Collection[str] | None = None,
    on_fault: OnFault | None = None,
) -> Aggregator:
    """Put an aggregator together, inside the event loop that it will live in.

    Args:
        settings: Where everything is.
        app: The Celery application to publish with; one of `settings.broker_url` when absent.
        sandbox: Runs programs that models wrote; the service of the settings when absent.
        registry: Where metrics go; nowhere when absent.
        engines: All engines that its evaluators have; any where absent, as evaluators come and
            go.
        on_fault: Hears, in any thread, of faults of an SQLite file that no further try mends.

    Raises:
        InvalidInputError: the database URL is of no known kind.
    """
    return Aggregator(
        settings,
        app or make_celery(settings.broker_url),
        sandbox or sandbox_at(settings.sandbox_target, settings.credentials),
        registry or CollectorRegistry(),
        engines=engines,
        on_fault=on_fault,
    )
