"""The Python client of a lab: typed results, no messages of the wire."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.analysis.listing import Listing
from modnorm.arguments import require_function, require_path
from modnorm.client.calls import (
    cancel_experiment,
    create_experiment,
    get_experiment,
    list_experiments,
)
from modnorm.client.connection import Connection
from modnorm.client.experiments import (
    Event,
    Experiment,
    ExperimentSummary,
    event_from_message,
    experiment_from_message,
    summary_from_message,
)
from modnorm.client.predicting import predict_in_lab, questions_of
from modnorm.client.watch import watch_messages
from modnorm.prediction.ranked_votes import OnProgress, Prediction, ignore_progress
from modnorm.spec import ExperimentSpec

if TYPE_CHECKING:
    from modnorm.analysis.run import Run


class Client(Connection):
    """A blocking connection to a lab; threads may share it. Its methods return frozen values."""

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
        """Return a finished experiment; its files are fetched into the cache and kept there.

        Raises:
            PreconditionError: it has not succeeded.
        """
        from modnorm.analysis.run import load_run  # noqa: PLC0415 - loads pandas
        from modnorm.client.export import cached_run  # noqa: PLC0415 - loads pandas

        return load_run(cached_run(self, experiment_id))

    def predict(  # noqa: PLR0913 - what is asked, and how
        self,
        experiment_id: str,
        questions: Iterable[Mapping[str, object]],
        population: int | None = None,
        ensemble_size: int | None = None,
        *,
        ask_all: bool = False,
        on_progress: OnProgress = ignore_progress,
    ) -> Iterator[Prediction]:
        """Yield an ensemble's answers to questions; the lab's evaluators give them.

        The lab runs an experiment that only votes, which `list` shows and `cancel` ends. The
        predictions come in the order of the questions, once all experts have answered. The same
        questions again are the same experiment.

        Args:
            experiment_id: The experiment, which has succeeded.
            questions: Rows with the columns of its task; they need no right answers.
            population: N; the largest when None.
            ensemble_size: K; the largest when None.
            ask_all: Whether experts also answer questions whose vote is settled.
            on_progress: Called with the number of answers that are given or skipped, and of all.

        Raises:
            NotFoundError: there is no such experiment, or it has no such ensemble.
            PreconditionError: it has not succeeded, or an expert could not answer, or the
                experiment was cancelled.
            InvalidInputError: a question breaks the task's schema; the message names its row.
            UnavailableError: the server could not be reached for `patience` seconds.
        """
        require_function(on_progress, "on_progress")
        asked = questions_of(experiment_id, population, ensemble_size, questions, ask_all)
        return predict_in_lab(self, asked, on_progress)

    def download(self, experiment_id: str, directory: Path | str) -> "Run":
        """Write the directory of a finished experiment and return the run in it.

        Raises:
            PreconditionError: it has not succeeded.
            ConflictError: the directory holds something else, or another process works in it.
        """
        from modnorm.analysis.run import load_run  # noqa: PLC0415 - loads pandas
        from modnorm.client.export import save_run_to  # noqa: PLC0415 - loads pandas

        path = require_path(directory, "directory")
        save_run_to(self, experiment_id, path)
        return load_run(path)
