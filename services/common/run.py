"""One process, one service: logs, signals, start and graceful stop."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from prometheus_client import CollectorRegistry

from modnorm.errors import ModnormError
from services.common.logging import configure_logging
from services.common.metrics import exposed
from services.common.settings import ServiceSettings, TracingSettings
from services.common.starting import read_settings
from services.common.tracing import traced

GARBAGE_THRESHOLDS = 50_000, 20, 20
"""Objects until the youngest are looked at, and how many such looks until older ones are."""

SWITCH_SECONDS = 0.001
"""How long a thread computes while another waits to; by default five times as long."""

logger = logging.getLogger(__name__)


class Service(Protocol):
    """What a process runs."""

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""

    async def start(self) -> None:
        """Start to work; return when ready."""

    async def stop(self) -> None:
        """Refuse new work, finish or hand back the present one, return when done."""


@runtime_checkable
class HastyService(Service, Protocol):
    """A service whose stop can take long, and can be made to take no longer."""

    def hurry(self) -> None:
        """Let a stop, in progress or to come, hand back what is in hand now."""


def run_service(settings: ServiceSettings, build: Callable[[CollectorRegistry], Service]) -> None:
    """Run a service until SIGTERM or SIGINT, then stop it gracefully; at once at the second.

    Args:
        settings: The settings of the service.
        build: Makes the service, whose metrics go to the registry that it is given; called inside
            the event loop.
    """
    configure_logging(settings.log_level)
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


async def _run(build: Callable[[], Service]) -> None:
    stopping, hurried = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (hurried if stopping.is_set() else stopping).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    service = build()
    await service.start()
    _collect_seldom()
    # Each of a transaction's answers waits for the interpreter, where calls keep it busy.
    sys.setswitchinterval(SWITCH_SECONDS)
    logger.info("listening", extra={"port": service.port})
    await stopping.wait()
    logger.info("stopping")
    hurrying = asyncio.create_task(_hurry(service, hurried))
    await service.stop()
    hurrying.cancel()


def _collect_seldom() -> None:
    """Have the garbage collector look seldom, and never at what a service is made of.

    Calls make many short-lived objects and hardly any cycles; by default the collector takes a
    fifth of a busy service's processor time, in pauses of tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


async def _hurry(service: Service, hurried: asyncio.Event) -> None:
    await hurried.wait()
    if isinstance(service, HastyService):
        logger.info("stopping at once")
        service.hurry()
