"""One process, one service: logs, signals, start and graceful stop."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry

from modnorm.errors import ModnormError
from services.common.logging import configure_logging
from services.common.metrics import exposed
from services.common.settings import ServiceSettings, TracingSettings
from services.common.tracing import traced

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


def run_service(settings: ServiceSettings, build: Callable[[CollectorRegistry], Service]) -> None:
    """Run a service until SIGTERM or SIGINT, then stop it gracefully.

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
            traced(TracingSettings(), f"modnorm-{name}") as tracing,
        ):
            logger.info("observed", extra={"metrics_port": port, "traces": tracing})
            asyncio.run(_run(lambda: build(registry)))
    except ModnormError as error:
        logger.critical("ended: %s", error)
        sys.exit(1)


async def _run(build: Callable[[], Service]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    service = build()
    await service.start()
    logger.info("listening", extra={"port": service.port})
    await stopping.wait()
    logger.info("stopping")
    await service.stop()
