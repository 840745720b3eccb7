"""A host's evaluators as one process: `python -m services.evaluator.supervisor`.

One worker process a GPU, since an engine owns its GPU and a crash of one must not end the others.
Workers inherit the environment; each has its device, a health address of its own, and the port of
its metrics: that of MODNORM_METRICS_ADDRESS plus the worker's number.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import grpc.aio

from modnorm.errors import UnavailableError
from services.common.healthcheck import check
from services.common.run import run_service
from services.common.server import RunningServer, start_server
from services.common.settings import SupervisorSettings, inherited_environment
from services.evaluator.child import Child
from services.evaluator.devices import chosen_devices

COMMAND = (sys.executable, "-m", "services.evaluator.server")
LOOK_SECONDS = 1.0
"""Seconds between two looks at the workers' health."""
STOP_SECONDS = 20.0
"""Seconds beyond the grace period after which a worker that was told to stop is killed."""

logger = logging.getLogger(__name__)


class Supervisor:
    """Workers, kept alive, and a server that says SERVING while all of them do.

    Args:
        settings: Where to listen, and which devices get a worker.
        devices: CUDA devices, one a worker; a single worker without one when empty.
        command: Program of a worker.
    """

    def __init__(
        self,
        settings: SupervisorSettings,
        devices: Sequence[str],
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._settings = settings
        self._folder = tempfile.TemporaryDirectory(prefix="modnorm-")
        self._command = tuple(command)
        self._children = {
            address: self._child(number, device, address)
            for number, (device, address) in enumerate(self._addresses(devices))
        }
        self._server: RunningServer | None = None
        self._runs: list[asyncio.Task[None]] = []
        self._health: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        if self._server is None:
            raise UnavailableError("the service is not started")
        return self._server.port

    async def start(self) -> None:
        """Listen and start the workers."""
        self._server = await start_server(
            self._settings.bind_address, _nothing, settings=self._settings
        )
        await self._server.set_serving(serving=False)
        self._runs = [asyncio.create_task(child.run()) for child in self._children.values()]
        self._health = asyncio.create_task(self._report_health(self._server))
        logger.info("workers", extra={"count": len(self._children)})

    async def stop(self) -> None:
        """Have all workers finish or hand back their jobs, then close."""
        if self._health is not None:
            self._health.cancel()
        for child in self._children.values():
            child.stop()
        await asyncio.gather(*self._runs)
        if self._server is not None:
            await self._server.stop(self._settings.stop_grace)
        self._folder.cleanup()

    def hurry(self) -> None:
        """Have all workers hand back their jobs now."""
        for child in self._children.values():
            child.hurry()

    def _addresses(self, devices: Sequence[str]) -> Sequence[tuple[str, str]]:
        folder = Path(self._folder.name)
        return [
            (device, f"unix:{folder / str(number)}")
            for number, device in enumerate(devices or ("",))
        ]

    def _child(self, number: int, device: str, address: str) -> Child:
        environment = inherited_environment() | self._changes(device, address, number)
        grace = self._settings.stop_grace + STOP_SECONDS
        return Child(device or "cpu", self._command, environment, grace=grace)

    def _changes(self, device: str, address: str, number: int) -> dict[str, str]:
        """Return what a worker's environment has of its own."""
        changes = {
            "MODNORM_SUPERVISED": "true",
            "MODNORM_BIND_ADDRESS": address,
            "MODNORM_METRICS_ADDRESS": _later_port(self._settings.metrics_address, number),
        }
        if device:
            changes["CUDA_VISIBLE_DEVICES"] = device
            if self._settings.worker_name:
                changes["MODNORM_WORKER_NAME"] = f"{self._settings.worker_name}-{device}"
        return changes

    async def _report_health(self, server: RunningServer) -> None:
        while True:
            statuses = await asyncio.gather(
                *(asyncio.to_thread(check, address) for address in self._children)
            )
            await server.set_serving(serving=all(status == "SERVING" for status in statuses))
            await asyncio.sleep(LOOK_SECONDS)


def _later_port(address: str, number: int) -> str:
    """Return the address some ports further: workers cannot share one."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number}" if port.isdecimal() and int(port) else address


def _nothing(_: grpc.aio.Server) -> Sequence[str]:
    return ()


def main() -> None:
    """Supervise until told to stop."""
    settings = SupervisorSettings()
    devices = chosen_devices(settings.devices, settings.visible_devices)
    # What is measured is measured by the workers.
    own = settings.model_copy(update={"metrics_address": ""})
    run_service(own, lambda _: Supervisor(settings, devices))


if __name__ == "__main__":
    main()
