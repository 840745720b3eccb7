"""Following an experiment over a connection that may break."""

import time
from collections.abc import Iterator
from typing import Protocol

import grpc
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    wait_random_exponential,
)

from modnorm.errors import CancelledError, ModnormError, UnauthenticatedError, UnavailableError
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.v1.experiment_pb2_grpc import ExperimentServiceStub
from modnorm.wire.status import from_rpc_error

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


class _Cancellable(Protocol):
    def cancel(self) -> object: ...


class Watch:
    """A stream of events that is opened again from its cursor when it breaks.

    Args:
        stub: The service.
        experiment_id: The experiment.
        cursor: Events after this one are wanted.
        patience: Seconds without any connection after which to give up.
    """

    def __init__(
        self, stub: ExperimentServiceStub, experiment_id: str, cursor: int, patience: float
    ) -> None:
        self._stub = stub
        self._experiment_id = experiment_id
        self._cursor = cursor
        self._last: experiments.WatchExperimentResponse | None = None
        self._call: _Cancellable | None = None
        self._events: Iterator[experiments.WatchExperimentResponse] = iter(())
        self._heard = False  # on the stream that is open
        self._patience = patience
        self._alive = time.monotonic()
        self._lost: float | None = None
        self._retrying = Retrying(
            # A server that stops ends its streams with CANCELLED; nobody here cancels.
            retry=retry_if_exception_type((UnavailableError, CancelledError)),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=self._gives_up,
            reraise=True,
        )

    def events(self) -> Iterator[experiments.WatchExperimentResponse]:
        """Yield events, none twice, until the experiment ends.

        Raises:
            UnavailableError: no connection for `patience` seconds.
        """
        try:
            while (event := self._retrying(self._advance)) is not None:
                yield event
        finally:
            self._disconnect()

    def _advance(self) -> experiments.WatchExperimentResponse | None:
        if self._call is None:
            self._connect()
        try:
            event = next(self._events, None)
        except grpc.RpcError as error:
            self._lose()
            raise self._met(error) from error
        if event is None:
            self._check_end()
            return None
        self._last, self._cursor, self._heard = event, event.cursor, True
        self._alive, self._lost = time.monotonic(), None
        return event

    def _met(self, error: grpc.RpcError) -> ModnormError:
        """Return what ended a stream; a token that was good on it may have been replaced since."""
        met = from_rpc_error(error)
        if isinstance(met, UnauthenticatedError) and self._heard:
            return UnavailableError(met.message, remedy=met.remedy)
        return met

    def _lose(self) -> None:
        """Take note of a broken stream: of when the connection was lost, if it was there."""
        self._disconnect()
        now = time.monotonic()
        if self._lost is None or now - self._alive > CONNECT_SECONDS:
            self._lost = now

    def _gives_up(self, _: RetryCallState) -> bool:
        return self._lost is not None and time.monotonic() - self._lost >= self._patience

    def _check_end(self) -> None:
        if self._last is not None and self._last.state not in TERMINAL_STATES:
            self._lose()
            raise UnavailableError("the stream of events ended before the experiment did")

    def _connect(self) -> None:
        request = experiments.WatchExperimentRequest(id=self._experiment_id, cursor=self._cursor)
        self._alive = time.monotonic()
        call = self._stub.WatchExperiment(request, timeout=STREAM_SECONDS)
        self._call, self._events, self._heard = call, iter(call), False

    def _disconnect(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None
