"""The Python client of a lab: typed results, no messages of the wire."""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from modnorm.analysis.listing import Listing
from modnorm.analysis.run import Run, load_run
from modnorm.client.calls import LabCalls
from modnorm.client.experiments import (
    Event,
    Experiment,
    ExperimentSummary,
    event_from_message,
    experiment_from_message,
    summary_from_message,
)
from modnorm.client.lab_run import LabRun
from modnorm.client.rundir import RunDirectory, hold
from modnorm.spec import ExperimentSpec, load_spec
from modnorm.wire.channel import Credentials


class Client:
    """A connection to an aggregator. Methods raise the errors of `modnorm.errors`.

    `modnorm.client.calls.LabCalls` makes the calls; this class converts what they return.

    Args:
        target: `HOST:PORT` of the aggregator.
        timeout: Seconds that one call may take, retries included.
        patience: Seconds that `watch` retries a server that went away.
        credentials: Token and certificates; those of the environment when absent.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = 30.0,
        patience: float = 120.0,
        credentials: Credentials | None = None,
    ) -> None:
        self._calls = LabCalls(target, timeout=timeout, patience=patience, credentials=credentials)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._calls.close()

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
        whole = spec if isinstance(spec, ExperimentSpec) else load_spec(Path(spec))
        return experiment_from_message(self._calls.submit(whole, request_id))

    def get(self, experiment_id: str) -> Experiment:
        """Return an experiment with the results it has so far."""
        return experiment_from_message(self._calls.get(experiment_id))

    def list(self) -> Listing[ExperimentSummary]:
        """Return all experiments, newest first, without their results."""
        return Listing(ExperimentSummary, lambda: map(summary_from_message, self._calls.list()))

    def watch(self, experiment_id: str, cursor: int = 0) -> Iterator[Event]:
        """Yield events after `cursor` until the experiment ends.

        A lost connection is reopened: no event is missed or repeated.

        Raises:
            UnavailableError: the server could not be reached for `patience` seconds.
        """
        return map(event_from_message, self._calls.watch(experiment_id, cursor))

    def cancel(self, experiment_id: str) -> Experiment:
        """Ask an experiment to stop; repeating it changes nothing."""
        return experiment_from_message(self._calls.cancel(experiment_id))

    def run(self, experiment_id: str) -> Run:
        """Return a finished experiment; its answers and votes are read from the lab when needed.

        Raises:
            PreconditionError: it has not succeeded.
        """
        return Run(experiment_id, LabRun(self._calls, self._calls.get(experiment_id)))

    def download(self, experiment_id: str, directory: Path | str) -> Run:
        """Write the directory of a finished experiment and return the run in it.

        Raises:
            PreconditionError: it has not succeeded.
            ConflictError: the directory holds something else, or another process works in it.
        """
        from modnorm.client.export import save_run  # noqa: PLC0415 - loads matplotlib

        run = LabRun(self._calls, self._calls.get(experiment_id))
        place = RunDirectory(Path(directory))
        with hold(place.path):
            place.check(run.spec)
            place.claim(run.spec)
            save_run(self._calls, run.experiment, place.path)
        return load_run(place.path)
