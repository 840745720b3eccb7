"""One process, one service: settings, logs, signals, start and graceful stop."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from prometheus_client import CollectorRegistry
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from modnorm.errors import ModnormError
from services.common.logging import configure_logging
from services.common.metrics import exposed
from services.common.settings import ServiceSettings, TracingSettings
from services.common.tracing import traced

GARBAGE_THRESHOLDS = 50_000, 20, 20
"""Garbage collection: objects until a young collection, and collections until an older one."""

SWITCH_SECONDS = 0.001
"""How long a thread computes while another waits: a fifth of Python's default."""

SettingsT = TypeVar("SettingsT", bound=BaseSettings)

logger = logging.getLogger(__name__)


class Service(Protocol):
    """A service of one process."""

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""

    async def start(self) -> None:
        """Start to work; return when ready."""

    async def stop(self) -> None:
        """Refuse new work, and return once the present work is finished or handed back."""


@runtime_checkable
class HastyService(Service, Protocol):
    """A service whose stop can take long and can be hurried."""

    def hurry(self) -> None:
        """Let a stop, in progress or to come, hand its work back now."""


def read_settings(kind: type[SettingsT]) -> SettingsT:
    """Return the settings of the environment; log wrong ones and end the process."""
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


def run_service(settings: ServiceSettings, build: Callable[[CollectorRegistry], Service]) -> None:
    """Run a service until SIGTERM or SIGINT, then stop it; a second signal hurries the stop.

    Args:
        settings: The settings of the service.
        build: Makes the service, whose metrics go to the given registry; called in the event loop.
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
    # Busy calls keep the interpreter from the answers of a transaction.
    sys.setswitchinterval(SWITCH_SECONDS)
    logger.info("listening", extra={"port": service.port})
    await stopping.wait()
    logger.info("stopping")
    hurrying = asyncio.create_task(_hurry(service, hurried))
    await service.stop()
    hurrying.cancel()


def _collect_seldom() -> None:
    """Have the garbage collector run seldom, and never on the objects of the start.

    Calls make many short-lived objects and hardly any cycles. By default the collector takes a
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
