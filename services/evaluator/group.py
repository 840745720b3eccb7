"""The workers of one GPU, or of one group of GPUs."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from services.evaluator.child import MAKES_ROOM, Child

logger = logging.getLogger(__name__)


class Group:
    """Workers that share a GPU's memory evenly, kept alive.

    When a model does not fit the share of one, all of them end and one fewer is started, each with
    a larger share. It stays so: a model that fits more would be switched away from again.

    Args:
        name: What logs call it.
        engines: How many there are at first.
        make: Makes so many workers.
    """

    def __init__(self, name: str, engines: int, make: Callable[[int], Sequence[Child]]) -> None:
        self.children = tuple(make(engines))
        self._name = name
        self._make = make
        self._is_stopping = False

    async def run(self) -> None:
        """Keep the workers alive until told to stop; return once they are gone."""
        while not await self._run_until_crowded():
            fewer = len(self.children) - 1
            extra = {"device": self._name, "workers": fewer}
            logger.warning("a model does not fit its share of a GPU: fewer workers", extra=extra)
            self.children = tuple(self._make(fewer))

    def stop(self) -> None:
        """Have `run` end the workers and return."""
        self._is_stopping = True
        for child in self.children:
            child.stop()

    def hurry(self) -> None:
        """Tell workers that were told to stop once more."""
        for child in self.children:
            child.hurry()

    async def _run_until_crowded(self) -> bool:
        """Run the workers to their end; return whether that is final."""
        runs = [asyncio.create_task(child.run()) for child in self.children]
        await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
        for child in self.children:
            child.stop()
        codes = await asyncio.gather(*runs)
        return self._is_stopping or MAKES_ROOM not in codes or len(self.children) == 1
