"""The Python client of a lab: typed results, no messages of the wire."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.client.connection import (
    UNSUCCESSFUL_STATES,
    Connection,
    ask_questions,
    cancel_experiment,
    create_experiment,
    get_experiment,
    list_experiments,
    request_ids,
    watch_messages,
)
from modnorm.client.experiments import (
    Event,
    Experiment,
    ExperimentSummary,
    event_from_message,
    experiment_from_message,
    summary_from_message,
)
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.prediction.ranked_votes import (
    OnProgress,
    Prediction,
    ignore_progress,
    read_predictions,
)
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name

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
            ConflictError: the request id belongs to another spec, or a file of the spec changed.
            UnavailableError: the lab did not answer in time; submit again with the request id
                that the error names.
        """
        return experiment_from_message(create_experiment(self, spec, request_id))

    def get(self, experiment_id: str) -> Experiment:
        """Return an experiment with the results it has so far."""
        return experiment_from_message(get_experiment(self, experiment_id))

    def list(self) -> Iterator[ExperimentSummary]:
        """Return an iterator over all experiments, newest first, without their results."""
        return map(summary_from_message, list_experiments(self))

    def watch(self, experiment_id: str, cursor: int = 0) -> Iterator[Event]:
        """Yield events after `cursor` until the experiment ends.

        A lost connection is reopened: no event is missed or repeated.

        Raises:
            UnavailableError: the server could not be reached for `patience` seconds.
        """
        return map(event_from_message, watch_messages(self, experiment_id, cursor))

    def cancel(self, experiment_id: str) -> Experiment:
        """Ask an experiment to stop; repeating it changes nothing."""
        return experiment_from_message(cancel_experiment(self, experiment_id))

    def run(self, experiment_id: str) -> "Run":
        """Return a finished experiment; its files are fetched into the cache and kept there.

        Raises:
            PreconditionError: it has not succeeded.
        """
        from modnorm.analysis.run import load_run  # noqa: PLC0415 - loads pandas
        from modnorm.client.fetching import cached_run  # noqa: PLC0415 - loads pandas

        return load_run(cached_run(self, experiment_id))

    def predict(
        self,
        experiment_id: str,
        questions: Iterable[Mapping[str, object]],
        population: int | None = None,
        ensemble_size: int | None = None,
        *,
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
            on_progress: Called with the number of answers that are given, and of all.

        Raises:
            NotFoundError: there is no such experiment, or it has no such ensemble.
            PreconditionError: it has not succeeded, or an expert could not answer, or the
                experiment was cancelled.
            InvalidInputError: a question breaks the task's schema; the message names its row.
            UnavailableError: the server could not be reached for `patience` seconds.
        """
        if isinstance(questions, Mapping):
            raise InvalidInputError(
                "the questions are one mapping",
                field="questions",
                remedy="give a list of mappings",
            )
        rows = [_encoded(number, question) for number, question in enumerate(questions)]
        if not rows:
            raise InvalidInputError(
                "there are no questions", field="questions", remedy="give one row at least"
            )
        request = experiments.Questions(
            of=experiment_id, population=population, ensemble_size=ensemble_size, rows=rows
        )
        return _predictions(self, request, on_progress)

    def download(self, experiment_id: str, directory: Path | str) -> "Run":
        """Write the directory of a finished experiment and return the run in it.

        Raises:
            PreconditionError: it has not succeeded, or another process works in the directory.
            ConflictError: the directory holds something else.
        """
        from modnorm.analysis.run import load_run  # noqa: PLC0415 - loads pandas
        from modnorm.client.fetching import save_run_to  # noqa: PLC0415 - loads pandas

        save_run_to(self, experiment_id, Path(directory))
        return load_run(directory)


def _predictions(
    client: Connection, request: experiments.Questions, on_progress: OnProgress
) -> Iterator[Prediction]:
    """Yield the predictions of a request once its experiment has ended.

    An equal request finds the experiment of an earlier one. If that failed or was cancelled,
    another experiment reuses its finished answers.
    """
    from modnorm.analysis.run_files import PREDICTIONS  # noqa: PLC0415 - loads pandas
    from modnorm.client.fetching import cached_run  # noqa: PLC0415 - loads pandas

    content = hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
    attempts = (ask_questions(client, request, name) for name in request_ids(content))
    experiment = next(each for each in attempts if each.state not in UNSUCCESSFUL_STATES)
    rows = len(request.rows)
    for event in watch_messages(client, experiment.id):
        progress = event.progress
        on_progress(progress.jobs_done * rows, progress.jobs_total * rows)
    ended = get_experiment(client, experiment.id)
    if ended.state in UNSUCCESSFUL_STATES:
        raise PreconditionError(
            ended.error or f"the experiment {ended.id} is {state_name(ended.state)}",
            field="questions",
            remedy=ended.remedy or "send the request again; finished answers are reused",
        )
    yield from read_predictions(cached_run(client, ended.id) / PREDICTIONS)


def _encoded(number: int, question: Mapping[str, object]) -> str:
    try:
        return json.dumps(dict(question), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"row {number}: not JSON: {error}",
            field="questions",
            remedy="give each question as a mapping from the task's columns to values",
        ) from error
