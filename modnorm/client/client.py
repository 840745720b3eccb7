"""The Python client of a lab: typed results, no messages of the wire."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tenacity import Retrying, retry_if_exception_type, stop_before_delay

from modnorm.analysis.listing import Listing
from modnorm.client.calls import (
    Call,
    ItemT,
    Page,
    ResultT,
    cancel_experiment,
    create_experiment,
    get_experiment,
    list_experiments,
)
from modnorm.client.experiments import (
    Event,
    Experiment,
    ExperimentSummary,
    event_from_message,
    experiment_from_message,
    summary_from_message,
)
from modnorm.client.lab_connection import CHANNEL_OPTIONS, SERIALIZE, LabConnection, limit_pause
from modnorm.client.rundir import RunDirectory, hold
from modnorm.client.watch import watch_messages
from modnorm.errors import RateLimitedError
from modnorm.spec import ExperimentSpec
from modnorm.wire.channel import open_channel

if TYPE_CHECKING:
    from modnorm.analysis.run import Run


class Client(LabConnection):
    """A blocking connection to a lab; threads may share it.

    `call`, `pages`, `stream` and `read` make the calls of `modnorm.client.calls` for the
    package itself. The other methods are built on them and return frozen values.
    """

    def _open(self) -> None:
        self._channel = open_channel(self._target, self._credentials, CHANNEL_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Later calls raise PreconditionError."""
        self._is_closed = True
        self._channel.close()

    def submit(
        self, spec: ExperimentSpec | Path | str, request_id: str | None = None
    ) -> Experiment:
        """Create an experiment; the same request id gives the same experiment.

        Args:
            spec: What to run, or the file of it.
            request_id: Name of the request; a fresh one when absent.

        Raises:
            InvalidInputError: the spec or its task file is not sound; nothing was stored.
            ConflictError: the request id belongs to another spec.
            UnavailableError: the lab did not answer in time; submit again with the request id
                that the error names.
        """
        return experiment_from_message(self.call(create_experiment(spec, request_id)))

    def get(self, experiment_id: str) -> Experiment:
        """Return an experiment with the results it has so far."""
        return experiment_from_message(self.call(get_experiment(experiment_id)))

    def list(self) -> Listing[ExperimentSummary]:
        """Return all experiments, newest first, without their results."""
        return Listing(
            ExperimentSummary, lambda: map(summary_from_message, self.pages(list_experiments))
        )

    def watch(self, experiment_id: str, cursor: int = 0) -> Iterator[Event]:
        """Yield events after `cursor` until the experiment ends.

        A lost connection is reopened: no event is missed or repeated.

        Raises:
            UnavailableError: the server could not be reached for `patience` seconds.
        """
        return map(event_from_message, watch_messages(self, experiment_id, cursor))

    def cancel(self, experiment_id: str) -> Experiment:
        """Ask an experiment to stop; repeating it changes nothing."""
        return experiment_from_message(self.call(cancel_experiment(experiment_id)))

    def run(self, experiment_id: str) -> "Run":
        """Return a finished experiment; its answers and votes are read from the lab when needed.

        Raises:
            PreconditionError: it has not succeeded.
        """
        from modnorm.analysis.run import Run  # noqa: PLC0415 - loads pandas
        from modnorm.client.lab_run import LabRun  # noqa: PLC0415 - loads pandas

        return Run(experiment_id, LabRun(self, self.call(get_experiment(experiment_id))))

    def download(self, experiment_id: str, directory: Path | str) -> "Run":
        """Write the directory of a finished experiment and return the run in it.

        Raises:
            PreconditionError: it has not succeeded.
            ConflictError: the directory holds something else, or another process works in it.
        """
        from modnorm.analysis.run import load_run  # noqa: PLC0415 - loads pandas
        from modnorm.client.export import save_run  # noqa: PLC0415 - loads matplotlib
        from modnorm.client.lab_run import LabRun  # noqa: PLC0415 - loads pandas

        run = LabRun(self, self.call(get_experiment(experiment_id)))
        place = RunDirectory(Path(directory))
        with hold(place.path):
            place.check(run.spec)
            place.claim(run.spec)
            save_run(self, run.experiment, place.path)
        return load_run(place.path)

    def call(self, call: Call[ResultT]) -> ResultT:
        """Make a call; repeat it after the pause of a rate limit, if the deadline allows."""
        method = self._channel.unary_unary(call.path, SERIALIZE, call.read)

        def attempt() -> ResultT:
            with self._faults(call):
                result: ResultT = method(call.request, timeout=self._seconds(call))
                return result

        return _admitted(attempt, self._seconds(call))

    def stream(self, call: Call[ResultT], seconds: float | None = None) -> Iterator[ResultT]:
        """Yield the responses of a call; they end after `seconds` at the latest."""
        method = self._channel.unary_stream(call.path, SERIALIZE, call.read)
        responses = method(call.request, timeout=seconds or self._seconds(call))
        try:
            with self._faults(call):
                yield from responses
        finally:
            responses.cancel()  # type: ignore[no-untyped-call]  # only in its stubs

    def read(self, call: Call[bytes]) -> bytes:
        """Return the chunks of a stream together."""

        def attempt() -> bytes:
            chunks = self.stream(call)
            return b"".join(chunks)

        return _admitted(attempt, self._seconds(call))

    def pages(self, page: Callable[[str], Call[Page[ItemT]]]) -> Iterator[ItemT]:
        """Yield the items of all pages, one call at a time.

        Args:
            page: Returns the call for a page token.
        """
        token = ""
        while True:
            items, token = self.call(page(token))
            yield from items
            if not token:
                return


def _admitted(attempt: Callable[[], ResultT], seconds: float) -> ResultT:
    """Make attempts until no rate limit refuses one, or its pause would exceed the deadline."""
    retrying = Retrying(
        retry=retry_if_exception_type(RateLimitedError),
        wait=limit_pause,
        stop=stop_before_delay(seconds),
        reraise=True,
    )
    return retrying(attempt)
