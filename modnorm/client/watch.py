"""Following an experiment over a connection that may break."""

import random
import time
from collections.abc import Iterator

from modnorm.arguments import require_index, require_text
from modnorm.client.connection import Connection
from modnorm.errors import CancelledError, ModnormError, UnauthenticatedError, UnavailableError
from modnorm.v1 import experiment_pb2 as experiments

TERMINAL_STATES = frozenset(
    {
        experiments.EXPERIMENT_STATE_SUCCEEDED,
        experiments.EXPERIMENT_STATE_FAILED,
        experiments.EXPERIMENT_STATE_CANCELLED,
    }
)
"""States that an experiment never leaves."""

STREAM_SECONDS = 600.0
"""A stream is opened anew after this long, so that a connection lost in silence is noticed."""
CONNECT_SECONDS = 30.0
"""Longer than any attempt to connect takes: a stream that lived this long was connected."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

_Event = experiments.WatchExperimentResponse


class Reconnection:
    """Decides whether to open a stream again after it broke."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._heard = False  # on the stream that is open
        self._alive = time.monotonic()
        self._lost: float | None = None
        self._failures = 0

    def opened(self) -> None:
        """Take note that the stream is opened."""
        self._alive, self._heard = time.monotonic(), False

    def heard(self) -> None:
        """Take note of a message, which proves the connection."""
        self._heard = True
        self._alive, self._lost, self._failures = time.monotonic(), None, 0

    def pause(self, error: ModnormError) -> float:
        """Return the seconds to wait before the stream is opened again."""
        now = time.monotonic()
        if self._lost is None or now - self._alive > CONNECT_SECONDS:
            self._lost = now
        # A server that stops ends its streams with CANCELLED. A token that was good on a stream
        # may have been replaced since.
        is_renewed = isinstance(error, UnauthenticatedError) and self._heard
        may_pass = is_renewed or isinstance(error, UnavailableError | CancelledError)
        if not may_pass or now - self._lost >= self._patience:
            raise error
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10))
        self._failures += 1
        return random.uniform(0, longest)


def watch_messages(client: Connection, experiment_id: str, cursor: int = 0) -> Iterator[_Event]:
    """Return the messages of `Client.watch`; the arguments are checked at once."""
    require_text(experiment_id, "experiment_id")
    require_index(cursor, "cursor")
    return _followed(client, experiment_id, cursor)


def _followed(client: Connection, experiment_id: str, cursor: int) -> Iterator[_Event]:
    connection = Reconnection(client.patience)
    last: _Event | None = None
    while True:
        try:
            connection.opened()
            request = experiments.WatchExperimentRequest(id=experiment_id, cursor=cursor)
            for event in client.stream("WatchExperiment", request, _Event, STREAM_SECONDS):
                connection.heard()
                last, cursor = event, event.cursor
                yield event
            if last is not None and last.state not in TERMINAL_STATES:
                raise UnavailableError("the stream of events ended before the experiment did")
        except ModnormError as error:
            pause = connection.pause(error)
        else:
            return
        time.sleep(pause)
