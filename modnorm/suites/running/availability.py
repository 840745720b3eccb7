"""Whether the lab of a suite can be reached, and how long it is waited for."""

import time

from modnorm.client.client import ModnormClient
from modnorm.errors import UnavailableError


class Reach:
    """Waits for a lab that goes away, and tells that from a part of it that one cell alone needs.

    Args:
        client: Connection to the lab.
        patience: Seconds that it may be out of reach once it was there.
    """

    def __init__(self, client: ModnormClient, patience: float) -> None:
        self._client = client
        self._patience = patience
        self._reached = False
        self._lost: float | None = None
        self._refused: set[str] = set()
        self._unfetched: dict[str, float] = {}

    @property
    def is_lost(self) -> bool:
        """Whether the lab did not answer when it was asked last."""
        return self._lost is not None

    def found(self) -> None:
        """Take note that the lab answers."""
        self._reached, self._lost = True, None

    def check(self) -> None:
        """Ask the lab for anything.

        Raises:
            UnavailableError: it is out of reach.
        """
        next(self._client.list(), None)
        self.found()

    def bear(self, error: UnavailableError) -> None:
        """Put up with a lab that is out of reach, once it was there and for a while.

        Raises:
            UnavailableError: the given one; it never was there, or has been away for too long.
        """
        now = time.monotonic()
        self._lost = now if self._lost is None else self._lost
        if not self._reached or now - self._lost >= self._patience:
            raise error

    def may_take(self, cell: str) -> bool:
        """Tell whether a lab that answers may not have when it was to take a cell: once."""
        known = cell in self._refused
        self._refused.add(cell)
        return self._patience > 0 and not known

    def may_give(self, cell: str) -> bool:
        """Tell whether to ask once more for the files of a cell, which the lab did not give."""
        now = time.monotonic()
        return now - self._unfetched.setdefault(cell, now) < self._patience
