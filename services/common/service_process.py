"""How services run: each in a process of its own, or several in one thread of a process."""

import asyncio
import gc
import logging
import math
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from modnorm.errors import ModnormError, PreconditionError
from modnorm.host import exempt_loopback
from modnorm.services.common.logging import configure_logging
from modnorm.services.common.metrics import exposed
from modnorm.services.common.server import GrpcService
from modnorm.services.common.settings import ServiceSettings, TracingSettings

GARBAGE_THRESHOLDS = 50_000, 20, 20
"""Thresholds of the garbage collector's three generations (`gc.set_threshold`)."""

SWITCH_SECONDS = 0.001
"""Switch interval of threads (`sys.setswitchinterval`): a fifth of Python's default."""

SIGNALS = signal.SIGTERM, signal.SIGINT
"""Either ends a service. The second ends it at once."""

REPEAT_SECONDS = 0.5
"""A signal that repeats this soon counts once: `timeout` sends it to process and group."""

SettingsT = TypeVar("SettingsT", bound=BaseSettings)

logger = logging.getLogger(__name__)


def read_settings(kind: type[SettingsT]) -> SettingsT:
    """Return the settings of the environment; if they are invalid, log why and exit."""
    try:
        return kind()
    except ValidationError as error:
        wrong = "; ".join(
            f"{_variable(kind, fault['loc'])}: {fault['msg']}" for fault in error.errors()
        )
    except ModnormError as error:
        wrong = str(error)
    configure_logging("INFO")
    logger.critical("ended: %s", wrong)
    sys.exit(1)


def _variable(kind: type[BaseSettings], place: tuple[int | str, ...]) -> str:
    """Return the name of the variable that a setting comes from."""
    name = str(place[0]) if place else "settings"
    if name not in kind.model_fields:
        return name
    return f"{kind.model_config.get('env_prefix', '')}{name}".upper()


def run_service(
    settings: ServiceSettings, build: Callable[[CollectorRegistry], GrpcService]
) -> None:
    """Run a service until SIGTERM or SIGINT, then stop it; a second signal ends it at once."""
    configure_logging(settings.log_level)
    exempt_loopback()
    registry = CollectorRegistry()
    name = type(settings).__name__.removesuffix("Settings").lower()
    try:
        with (
            exposed(settings.metrics_address, registry) as port,
            traced(read_settings(TracingSettings), f"modnorm-{name}") as tracing,
        ):
            logger.info("observed", extra={"metrics_port": port, "traces": tracing})
            asyncio.run(_run(lambda: build(registry)))
    except ModnormError as error:
        logger.critical("ended: %s", error)
        sys.exit(1)


@contextmanager
def traced(settings: TracingSettings, service: str) -> Iterator[bool]:
    """Export traces of calls and jobs inside the context; yield whether they are exported.

    Without an endpoint OpenTelemetry is not imported.
    """
    if not settings.wanted:
        yield False
        return
    try:
        from modnorm.services.common.telemetry import exporting_provider, instrumented  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise PreconditionError(
            f"an endpoint for traces is set, but {error.name} is not installed",
            field="OTEL_EXPORTER_OTLP_ENDPOINT",
            remedy="install modnorm[telemetry], or unset the variable",
        ) from error
    with instrumented(exporting_provider(service)):
        yield True


async def _run(build: Callable[[], GrpcService]) -> None:
    stopping, immediate = asyncio.Event(), asyncio.Event()
    loop, last = asyncio.get_running_loop(), dict.fromkeys(SIGNALS, -math.inf)

    def on_signal(number: signal.Signals) -> None:
        now, before = loop.time(), last[number]
        last[number] = now
        if now - before > REPEAT_SECONDS:
            (immediate if stopping.is_set() else stopping).set()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    service = build()

    async def stop_now() -> None:
        await immediate.wait()
        logger.info("stopping at once")
        service.stop_now()

    stop_now_task = asyncio.create_task(stop_now())
    try:
        await service.start()
        _collect_seldom()
        # Otherwise busy calls delay the thread that commits a transaction.
        sys.setswitchinterval(SWITCH_SECONDS)
        logger.info("listening", extra={"port": service.port})
        await stopping.wait()
        logger.info("stopping")
    finally:
        await service.stop()
        stop_now_task.cancel()


def _collect_seldom() -> None:
    """Run the garbage collector rarely, and never on objects of the start.

    Calls create many short-lived objects and few cycles. With default thresholds the collector
    takes a fifth of a busy service's CPU time, in pauses of tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


ANY_PORT = "127.0.0.1:0"
"""A free port of this machine, which other machines do not reach."""

StartedT = TypeVar("StartedT")


class ServiceThread(ABC, Generic[StartedT]):
    """Serves in the thread that calls `run`."""

    def __init__(self) -> None:
        self.started: Future[StartedT] = Future()
        """What `_start` returned, or the error that it raised."""
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._fault: ModnormError | None = None

    def run(self) -> None:
        """Serve until `stop` is called."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def stop(self) -> None:
        """End `run`; may be called from any thread, more than once."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stopping.set)

    def _break_down(self, fault: ModnormError) -> None:
        """End `run` with the first error; may be called from any thread."""
        self._fault = self._fault or fault
        self.stop()

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            try:
                self.started.set_result(await self._start(stack))
            except BaseException as error:
                self.started.set_exception(error)
                raise
            await self._stopping.wait()
            if self._fault is not None:
                raise self._fault

    @abstractmethod
    async def _start(self, stack: AsyncExitStack) -> StartedT:
        """Start the services; the stack stops them."""


async def start_service(service: GrpcService, stack: AsyncExitStack) -> str:
    """Start a service, stopped by the stack, and return its address."""
    stack.push_async_callback(service.stop)  # also after a start that failed
    await service.start()
    return f"127.0.0.1:{service.port}"
