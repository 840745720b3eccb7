"""A whole lab in one process: all services on loopback ports.

The database is an SQLite file, and the queue is Celery's in-memory transport. The evaluator is a
thread of this process; on a host with GPUs, evaluators are processes under a supervisor. All else
is the same code as in a lab of separate processes.
"""

import asyncio
import gc
import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlalchemy import URL
from typing_extensions import override

from modnorm.engines import EngineSettings, engine_names, import_engine, is_vllm
from modnorm.errors import EngineError, ModnormError
from modnorm.process_output import LAB_LOG
from modnorm.sandbox import Runner, Sandbox
from modnorm.services.aggregator.server import Aggregator
from modnorm.services.aggregator.storage.evaluation_cache import EvaluationCache
from modnorm.services.calibrator.server import build as build_calibrator
from modnorm.services.common.logging import logging_to
from modnorm.services.common.service_process import (
    ANY_PORT,
    GARBAGE_THRESHOLDS,
    SWITCH_SECONDS,
    ServiceThread,
    start_service,
)
from modnorm.services.common.settings import (
    AggregatorSettings,
    CalibratorSettings,
    EvaluatorSettings,
    SamplerSettings,
    SandboxSettings,
    ServiceSettings,
    SupervisorSettings,
    inherited_environment,
)
from modnorm.services.embedded_gpus import embedded_devices, make_supervisor
from modnorm.services.embedded_state import DATABASE, RUNS
from modnorm.services.evaluator.placement import COMPILE_CACHES
from modnorm.services.evaluator.worker import Worker
from modnorm.services.sampler.server import build as build_sampler
from modnorm.services.sandbox.server import SandboxServer
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.wire.connection import Credentials, LabAccess
from modnorm.wire.tokens import Role, TokenTable, make_token, write_tokens

_BROKER = "memory://localhost/"
_TOKENS = "tokens.yaml"
_LOAD_LOCK = "engine-load.lock"
_HEARTBEAT_SECONDS = 1.0
"""Idle evaluators in other processes, which the queue does not reach, ask for jobs as often."""
_GRACE_SECONDS = 1.0
"""Short, since a user waits in the foreground: the current job is released unfinished."""

_OUTAGE_SECONDS = 10.0
"""No operator can repair the calibrator or the sampler, for example after a full disk. The
experiment fails with the reason, and the same command resumes it."""


logger = logging.getLogger(__name__)


@contextmanager
def start(state: Path, *, cache: Path, data: Sequence[Path] = ()) -> Iterator[LabAccess]:
    """Start a lab; the end of the context stops it.

    A part that fails ends the others, so that clients lose the connection at once. Its error
    is raised at the end of the context. A database file that can no longer be used, for example on
    a full disk, also ends the lab, since no operator repairs it. Other users of this machine lack
    the token in the credentials.

    One process at a time uses `state`, the directory of database and log. Labs may share `cache`,
    and `data` are further directories of named splits.
    """
    state.mkdir(parents=True, exist_ok=True)
    log, leaving = state / LAB_LOG, threading.Event()
    # As in services. Otherwise calls delay each step of the engine's scheduler by milliseconds.
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GARBAGE_THRESHOLDS)

    def work(worker: Worker) -> None:
        """Run a worker; raise an error if it ends without a request."""
        worker.run()
        if not leaving.is_set():
            raise EngineError("the evaluator ended", remedy=f"the reason is in {log}")

    with (
        logging_to(log, named=True),
        Sandbox() as sandbox,
        ThreadPoolExecutor(2, "lab") as threads,
    ):
        common = _common_settings(state, cache)
        devices = embedded_devices()
        if not devices:
            # Imports of calibrator and evaluator at the same time could see half of a module.
            import_engine("transformers", EngineSettings())
        services = _Services(state, common, sandbox, data)
        parts = [threads.submit(services.run)]
        try:
            lab = LabAccess(services.started.result(), Credentials(token=common.token))
            if devices:
                services.supervise(lab, devices)
            else:
                settings = EvaluatorSettings(
                    aggregator_target=lab.target,
                    broker_url=_BROKER,
                    load_lock=_load_lock(common.cache),
                    **common.model_dump(),
                )
                services.evaluator = Worker(settings, sandbox=sandbox)
                parts.append(threads.submit(work, services.evaluator))
                parts[-1].add_done_callback(lambda _: services.stop())
            try:
                yield lab
            finally:
                leaving.set()
                if services.evaluator is not None:
                    services.evaluator.stop()
        finally:
            services.stop()
            wait(parts)
            # Clients have fetched them, and a lab that is asked again writes them again.
            shutil.rmtree(state / RUNS, ignore_errors=True)
            for part in reversed(parts):
                part.result()  # raises the part's error


def _load_lock(cache: Path) -> Path | None:
    """Return the file that labs of one folder of compiled kernels lock while an engine loads.

    vLLM does not guard the folder. None if the cache cannot be written.
    """
    folder = Path(inherited_environment().get(COMPILE_CACHES[0]) or cache)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / _LOAD_LOCK if os.access(folder, os.W_OK) else None


def _common_settings(state: Path, cache: Path) -> ServiceSettings:
    """Return settings of all services, with a token: other users of the machine reach the ports.

    They override the environment.
    """
    token, accepted = make_token("embedded", tuple(Role))
    write_tokens(state / _TOKENS, TokenTable(tokens=(accepted,)))
    return ServiceSettings(
        bind_address=ANY_PORT,
        token=SecretStr(token),
        token_file=None,
        accepted_tokens=state / _TOKENS,
        tls_ca=None,
        tls_cert=None,
        tls_key=None,
        tls_client_certificates=False,
        model_roots=None,
        data_roots=None,
        cache_dir=cache,
        stop_grace=_GRACE_SECONDS,
    )


class _Services(ServiceThread[str]):
    """Calibrator, sampler and aggregator; starts with the address of the aggregator."""

    def __init__(
        self, state: Path, common: ServiceSettings, sandbox: Runner, data: Sequence[Path]
    ) -> None:
        super().__init__()
        self._state = state
        self._data = data
        self._common = common
        self._sandbox = sandbox
        self.evaluator: Worker | None = None
        """It loads vLLM, which takes a minute, as soon as an experiment will need it."""
        self._first_job: asyncio.Future[messages.Job] = self._loop.create_future()
        self._supervising: Future[None] | None = None

    def supervise(self, lab: LabAccess, devices: Sequence[str]) -> None:
        """Start a sandbox, and at the first experiment evaluators on GPUs."""
        settings = SupervisorSettings(
            aggregator_target=lab.target,
            broker_url=_BROKER,
            heartbeat_seconds=_HEARTBEAT_SECONDS,
            **self._common.model_dump() | {"metrics_address": ""},
        )
        work = self._supervise(settings, devices)
        self._supervising = asyncio.run_coroutine_threadsafe(work, self._loop)

    def _warm(self, job: messages.Job) -> None:
        """Prepare evaluators for an experiment; called in the event loop."""
        if self.evaluator is not None and is_vllm(job.engine.name):
            self.evaluator.warm(job)
        if not self._first_job.done():
            self._first_job.set_result(job)

    async def _supervise(self, settings: SupervisorSettings, devices: Sequence[str]) -> None:
        """Run evaluators until the lab stops."""
        try:
            async with AsyncExitStack() as stack:
                sandbox = SandboxServer(SandboxSettings(**self._common.model_dump()))
                target = await start_service(sandbox, stack)
                settings = settings.model_copy(update={"sandbox_target": target})
                stop = asyncio.create_task(self._stopping.wait())
                awaited: set[asyncio.Future[Any]] = {self._first_job, stop}
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                if stop.done():
                    return
                supervisor = await asyncio.to_thread(
                    make_supervisor, settings, devices, self._first_job.result(), self._state
                )
                stack.push_async_callback(supervisor.stop)
                if self._stopping.is_set():
                    return
                await supervisor.start()
                work = asyncio.create_task(supervisor.wait())
                await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
                stop.cancel()
                if work.done():
                    work.result()
        except EngineError as error:
            log = self._state / LAB_LOG
            self._break_down(EngineError(error.message, remedy=f"the reason is in {log}"))
        except ModnormError as error:
            self._break_down(error)
        except Exception as error:
            logger.exception("the evaluators do not start")
            self._break_down(EngineError(f"the evaluators do not start: {error}"))

    async def _end_evaluators(self) -> None:
        """Wait until evaluators, or their start, have ended: they leave no daemon behind."""
        if self._supervising is not None:
            await asyncio.wrap_future(self._supervising)

    @override
    async def _start(self, stack: AsyncExitStack) -> str:
        common = self._common.model_dump()
        calibrator = build_calibrator(CalibratorSettings(**common))
        database = URL.create("sqlite", database=str((self._state / DATABASE).resolve()))
        sampler = build_sampler(SamplerSettings(**common))
        aggregator = Aggregator(
            AggregatorSettings(
                calibrator_target=await start_service(calibrator, stack),
                sampler_target=await start_service(sampler, stack),
                database_url=database.render_as_string(),
                run_dir=self._state / RUNS,
                broker_url=_BROKER,
                release_leases_on_start=True,
                outage_seconds=_OUTAGE_SECONDS,
                page_address="",
                split_folders=tuple(self._data),
                **common,
            ),
            sandbox=self._sandbox,
            engines=engine_names(),
            on_fault=self._break_down,
            on_create=self._warm,
            evaluations=EvaluationCache(self._common.cache),
        )
        target = await start_service(aggregator, stack)
        stack.push_async_callback(self._end_evaluators)
        return target
