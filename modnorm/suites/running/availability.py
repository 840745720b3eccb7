"""Whether the lab of a suite answers, and how long a runner waits for it."""

import time

from modnorm.client.client import Client
from modnorm.errors import UnavailableError


class LabAvailability:
    """Separates a lab that is away from a lab that fails for one cell alone.

    Args:
        client: Connection to the lab.
        patience: Seconds that a lab may be away after it answered once.
    """

    def __init__(self, client: Client, patience: float) -> None:
        self._client = client
        self._patience = patience
        self._has_answered = False
        self._away_since: float | None = None
        self._refused: set[str] = set()
        self._unfetched: dict[str, float] = {}

    @property
    def is_away(self) -> bool:
        """Whether the last call found no lab."""
        return self._away_since is not None

    def note_answer(self) -> None:
        """Record that the lab answers."""
        self._has_answered, self._away_since = True, None

    def check(self) -> None:
        """Call the lab.

        Raises:
            UnavailableError: the lab does not answer.
        """
        next(iter(self._client.list()), None)
        self.note_answer()

    def tolerate(self, error: UnavailableError) -> None:
        """Accept that the lab does not answer, unless it never did or is away for too long.

        Raises:
            UnavailableError: the error passed in.
        """
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        if not self._has_answered or now - self._away_since >= self._patience:
            raise error

    def may_resubmit(self, cell: str) -> bool:
        """Return whether to submit a cell again after a lab that answers refused it: once."""
        is_first = cell not in self._refused
        self._refused.add(cell)
        return self._patience > 0 and is_first

    def may_refetch(self, cell: str) -> bool:
        """Return whether to fetch the files of a cell again after a failure."""
        now = time.monotonic()
        return now - self._unfetched.setdefault(cell, now) < self._patience
