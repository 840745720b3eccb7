"""A connection to a lab: calls, deadlines, errors, retries, and streams that are reopened."""

import math
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Self, TypeVar

import grpc

from modnorm.client.settings import ClientSettings
from modnorm.errors import (
    CancelledError,
    InvalidInputError,
    ModnormError,
    UnauthenticatedError,
    UnavailableError,
)
from modnorm.radius.artifact import carry_radius
from modnorm.spec import ExperimentSpec, load_spec
from modnorm.tasks.declared_task import carry_declaration
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.v1.experiment_pb2_grpc import ExperimentServiceStub
from modnorm.wire.channel import channel_options, closed_connection, open_channel
from modnorm.wire.connection import ConnectionSettings, Credentials, require_target
from modnorm.wire.conversions import spec_to_proto
from modnorm.wire.status import LATE, from_rpc_error

_SERVICE = experiments.DESCRIPTOR.services_by_name["ExperimentService"].full_name
# Every method may be repeated: creation carries a request id, the rest read or absorb.
_CHANNEL_OPTIONS = channel_options([{"service": _SERVICE}], most_bytes=64 * 2**20)
_SUBMIT_SECONDS = 2_400.0
"""Deadline of a submission, also of questions. It downloads and hashes a model that the lab has
not seen since it started, for which the lab itself allows half an hour; data and an answer come on
top."""
_DOWNLOAD_SECONDS = 3_600.0
_LATE = f"{LATE}, or allow more time (`timeout`, MODNORM_TIMEOUT for commands)"
_PAGE = 500
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Connection:
    """A connection to an aggregator; threads may share it. Methods raise `modnorm.errors`.

    Args:
        target: `HOST:PORT` of the aggregator.
        timeout: Seconds that one call may take, retries included.
        patience: Seconds that `watch` retries a server that went away; infinity is no limit.
        credentials: Token and certificates; those of the environment when absent.

    Raises:
        InvalidInputError: the target is no address, or the timeout or patience no time.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 30.0,
        patience: float = 120.0,
        credentials: Credentials | None = None,
    ) -> None:
        if not patience >= 0:
            raise InvalidInputError(
                f"{patience} is no number of seconds", field="patience", remedy="give 120"
            )
        if not 0 <= timeout < math.inf:
            raise InvalidInputError(
                f"{timeout} is no finite number of seconds", field="timeout", remedy="give 30"
            )
        shown = ConnectionSettings() if credentials is None else credentials
        shown.require_authorities()
        require_target(target)
        self._server = f"the server {target}"
        self._timeout = timeout
        self.patience = patience
        self._is_closed = False
        self._channel = open_channel(target, shown, _CHANNEL_OPTIONS)
        self.stub = ExperimentServiceStub(self._channel)
        """The methods of the lab, for `call` and `stream`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Later calls raise PreconditionError."""
        self._is_closed = True
        self._channel.close()

    def call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        *,
        least_seconds: float = 0.0,
        late: str = _LATE,
    ) -> ResponseT:
        """Make a call; the channel repeats it while the server is unavailable.

        `least_seconds` is the least deadline, `late` the remedy where no answer came in time.
        """
        with self._faults(late):
            return method(request, timeout=max(self._timeout, least_seconds))

    def stream(
        self,
        method: "grpc.UnaryStreamMultiCallable[RequestT, ResponseT]",
        request: RequestT,
        seconds: float,
    ) -> Iterator[ResponseT]:
        """Yield the responses of a call; they end after `seconds` at the latest."""
        responses = method(request, timeout=seconds)
        try:
            with self._faults(_LATE):
                yield from responses
        finally:
            responses.cancel()  # type: ignore[no-untyped-call]  # only in its stubs

    @contextmanager
    def _faults(self, late: str) -> Iterator[None]:
        """Raise this project's errors; calls that `close` ended raise PreconditionError."""
        try:
            yield
        except grpc.RpcError as error:
            if self._is_closed:
                raise closed_connection() from error
            raise from_rpc_error(error, server=self._server, late=late) from error


def create_experiment(
    client: Connection, spec: ExperimentSpec | Path | str, request_id: str | None = None
) -> experiments.Experiment:
    """Create an experiment; the same request id gives the same one if its files are unchanged.

    Where the spec names a task file, it is read here and its text goes with the spec; a radius
    that is named by an artifact becomes a number.
    """
    whole = carry_declaration(spec if isinstance(spec, ExperimentSpec) else load_spec(spec))
    if not whole.method.is_resolved:
        whole = carry_radius(whole, ClientSettings().cache)
    request_id = str(uuid.uuid4()) if request_id is None else request_id
    return client.call(
        client.stub.CreateExperiment,
        experiments.CreateExperimentRequest(request_id=request_id, spec=spec_to_proto(whole)),
        least_seconds=_SUBMIT_SECONDS,
        late="the lab may still be at it, downloading the model for instance: submit again with "
        f"the request id {request_id}, which stays one experiment",
    ).experiment


def request_ids(first: str) -> Iterator[str]:
    """Yield the request ids of a request: of the first attempt, the second, and so on."""
    yield first
    for attempt in count(2):
        yield f"{first}/{attempt}"


def ask_questions(
    client: Connection, questions: experiments.Questions, request_id: str
) -> experiments.Experiment:
    """Create an experiment that only votes; the same request id gives the same experiment."""
    request = experiments.CreateExperimentRequest(request_id=request_id, questions=questions)
    return client.call(
        client.stub.CreateExperiment, request, least_seconds=_SUBMIT_SECONDS
    ).experiment


def get_experiment(client: Connection, experiment_id: str) -> experiments.Experiment:
    """Read an experiment with the results it has so far."""
    request = experiments.GetExperimentRequest(id=experiment_id)
    return client.call(client.stub.GetExperiment, request).experiment


def cancel_experiment(client: Connection, experiment_id: str) -> experiments.Experiment:
    """Ask an experiment to stop; repeating it changes nothing."""
    request = experiments.CancelExperimentRequest(id=experiment_id)
    return client.call(client.stub.CancelExperiment, request).experiment


def list_experiments(client: Connection) -> Iterator[experiments.Experiment]:
    """Yield all experiments, newest first, without their results; a call for each page."""
    token = ""
    while True:
        request = experiments.ListExperimentsRequest(page_size=_PAGE, page_token=token)
        page = client.call(client.stub.ListExperiments, request)
        yield from page.experiments
        token = page.next_page_token
        if not token:
            return


def list_run_files(client: Connection, experiment_id: str) -> Sequence[experiments.RunFile]:
    """List the files of a finished experiment's directory; the lab may write them first."""
    request = experiments.ListRunFilesRequest(experiment_id=experiment_id)
    return client.call(client.stub.ListRunFiles, request, least_seconds=_DOWNLOAD_SECONDS).files


def get_run_file(
    client: Connection, experiment_id: str, name: str, offset: int = 0
) -> Iterator[bytes]:
    """Yield the chunks of a file of this directory, from an offset on."""
    request = experiments.GetRunFileRequest(experiment_id=experiment_id, name=name, offset=offset)
    responses = client.stream(client.stub.GetRunFile, request, _DOWNLOAD_SECONDS)
    return (each.chunk for each in responses)


UNSUCCESSFUL_STATES = frozenset(
    {experiments.EXPERIMENT_STATE_FAILED, experiments.EXPERIMENT_STATE_CANCELLED}
)
TERMINAL_STATES = UNSUCCESSFUL_STATES | {experiments.EXPERIMENT_STATE_SUCCEEDED}
"""States that an experiment never leaves."""

STREAM_SECONDS = 600.0
"""Seconds after which a stream is opened again, to notice a connection that was lost silently."""
CONNECT_SECONDS = 30.0
"""Longer than any attempt to connect takes: a stream that lasted this long was connected."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

_Event = experiments.WatchExperimentResponse


class Reconnection:
    """Decides whether to open a stream again after it broke, or to repeat a call."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._heard = False  # on the stream that is open
        self._alive = math.inf  # of calls, whose duration proves no connection
        self._lost: float | None = None
        self._failures = 0

    def opened(self) -> None:
        """Record that the stream is opened."""
        self._alive, self._heard = time.monotonic(), False

    def heard(self) -> None:
        """Record a message, which proves the connection."""
        self._heard = True
        self._alive, self._lost = time.monotonic(), None

    def pause(self, error: ModnormError) -> float:
        """Return the seconds to wait before the stream is opened again."""
        now = time.monotonic()
        if self._lost is None or now - self._alive > CONNECT_SECONDS:
            self._lost, self._failures = now, 0
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
    """Yield the messages of `Client.watch`."""
    connection = Reconnection(client.patience)
    last: _Event | None = None
    while True:
        try:
            connection.opened()
            request = experiments.WatchExperimentRequest(id=experiment_id, cursor=cursor)
            for event in client.stream(client.stub.WatchExperiment, request, STREAM_SECONDS):
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
