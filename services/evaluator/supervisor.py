"""A host's evaluators as one process: `python -m services.evaluator.supervisor`.

Each worker is a process with one engine on one GPU, or on a share of one: a crash of one must not
end the others. Workers inherit the environment; each has its device, its share of the memory,
ports and a compile cache of its own, and the port of its metrics: that of MODNORM_METRICS_ADDRESS
plus the worker's number. One that ends, or answers no health check for long, is started again.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from services.common.healthcheck import check
from services.common.run import run_service
from services.common.server import RunningServer, no_services, port_of, start_server
from services.common.settings import SupervisorSettings, inherited_environment
from services.common.starting import read_settings
from services.evaluator.devices import chosen_devices
from services.evaluator.mps import chosen_mps
from services.evaluator.placement import (
    Place,
    address_of,
    environment_of,
    grouped,
    wanted_engines,
)
from services.evaluator.worker_process import Child, Group

COMMAND = (sys.executable, "-m", "services.evaluator.server")
LOOK_SECONDS = 1.0
"""Seconds between two looks at the workers' health."""
CHECK_SECONDS = 5.0
"""Seconds that a worker has for an answer."""
STOP_SECONDS = 26.0
"""Seconds beyond the grace period after which a worker that was told to stop is killed."""
ANSWERS = frozenset({"SERVING", "NOT_SERVING", "SERVICE_UNKNOWN", "UNKNOWN"})
"""What a worker says of itself; anything else is silence."""
UNANSWERED = "DEADLINE_EXCEEDED"
"""What a call of a worker ends with that listens and says nothing: it may have been stopped."""

logger = logging.getLogger(__name__)


class Supervisor:
    """Workers, kept alive, and a server that says SERVING while all of them do.

    Args:
        settings: Where to listen, and how GPUs are shared.
        devices: CUDA devices; a single worker without one when empty.
        command: Program of a worker.

    Raises:
        InvalidInputError: the settings do not go together.
        UnavailableError: MPS is wanted, and does not start.
    """

    def __init__(
        self,
        settings: SupervisorSettings,
        devices: Sequence[str],
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._settings = settings
        self._command = tuple(command)
        with ExitStack() as made:
            home = made.enter_context(tempfile.TemporaryDirectory(prefix="modnorm-"))
            self._folder, inherited = Path(home), inherited_environment()
            self._mps = chosen_mps(settings.mps, inherited, self._folder) if devices else None
            if self._mps is not None:
                made.callback(self._mps.close)
            self._inherited = inherited | (self._mps.changes if self._mps else {})
            engines = wanted_engines(settings, has_mps=self._mps is not None) if devices else 1
            self._groups = [
                Group(device or "cpu", engines, self._maker(index * engines, device))
                for index, device in enumerate(grouped(devices, settings.gpus_per_worker) or ("",))
            ]
            self._made = made.pop_all()
        self._server: RunningServer | None = None
        self._runs: list[asyncio.Task[None]] = []
        self._health: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        return port_of(self._server)

    async def start(self) -> None:
        """Listen and start the workers."""
        with ExitStack() as undone:
            undone.callback(self._made.close)
            self._server = await start_server(
                self._settings.bind_address, no_services, settings=self._settings
            )
            undone.pop_all()
        await self._server.set_serving(serving=False)
        self._runs = [asyncio.create_task(group.run()) for group in self._groups]
        self._health = asyncio.create_task(self._report_health(self._server))
        extra = {"count": len(self._children), "mps": self._mps is not None}
        logger.info("workers", extra=extra)

    async def stop(self) -> None:
        """Have all workers finish or hand back their jobs, then close."""
        if self._health is not None:
            self._health.cancel()
        for group in self._groups:
            group.stop()
        await asyncio.gather(*self._runs)
        if self._server is not None:
            await self._server.stop(self._settings.stop_grace)
        await asyncio.to_thread(self._made.close)

    def hurry(self) -> None:
        """Have all workers hand back their jobs now."""
        for group in self._groups:
            group.hurry()

    @property
    def _children(self) -> Sequence[Child]:
        return [child for group in self._groups for child in group.children]

    def _maker(self, first: int, device: str) -> Callable[[int], Sequence[Child]]:
        """Return what makes the workers of a device, whose places begin with `first`."""

        def make(engines: int) -> Sequence[Child]:
            places = [Place(first + slot, device, slot, engines) for slot in range(engines)]
            return [self._child(place) for place in places]

        return make

    def _child(self, place: Place) -> Child:
        return Child(
            f"{place.device}.{place.slot}" if place.device else "cpu",
            self._command,
            environment_of(place, self._settings, self._inherited, self._folder),
            address=address_of(place, self._folder),
            grace=self._settings.stop_grace + STOP_SECONDS,
        )

    async def _report_health(self, server: RunningServer) -> None:
        while True:
            try:
                found = await asyncio.gather(*(self._look(child) for child in self._children))
                await server.set_serving(serving=all(found))
            except Exception:  # too many open files, perhaps: workers are to be watched after it
                logger.exception("the workers were not looked at")
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, child: Child) -> bool:
        """Return whether a worker works; kill one that has said nothing for too long."""
        status = await asyncio.to_thread(check, child.address, timeout=CHECK_SECONDS)
        if status in ANSWERS:
            child.hear()
        else:
            if status == UNANSWERED:
                child.reach()
            child.end_silence(self._settings.silence_seconds)
        return status == "SERVING"


def main() -> None:
    """Supervise until told to stop."""
    settings = read_settings(SupervisorSettings)
    # What is measured is measured by the workers.
    own = settings.model_copy(update={"metrics_address": ""})
    run_service(
        own,
        lambda _: Supervisor(settings, chosen_devices(settings.devices, settings.visible_devices)),
    )


if __name__ == "__main__":
    main()
