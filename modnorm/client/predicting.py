"""Predictions by the evaluators of a lab: an experiment that only votes."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from modnorm.arguments import (
    require_flag,
    require_function,
    require_index,
    require_several,
    require_text,
)
from modnorm.client.calls import ask_questions, get_experiment
from modnorm.client.connection import Connection
from modnorm.client.watch import watch_messages
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.prediction.ranked_votes import OnProgress, Prediction, read_predictions
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name

Question = Mapping[str, object]
_AGAIN = {experiments.EXPERIMENT_STATE_FAILED, experiments.EXPERIMENT_STATE_CANCELLED}


@dataclass(frozen=True, slots=True)
class AskedEnsemble:
    """The ensemble of a lab's experiment that is asked, and how.

    Raises:
        InvalidInputError: a value has the wrong type.
    """

    experiment_id: str
    population: int | None
    """N; the largest when None."""
    ensemble_size: int | None
    """K; the largest when None."""
    ask_all: bool
    """Whether experts also answer questions whose vote is settled."""
    on_progress: OnProgress

    def __post_init__(self) -> None:
        require_text(self.experiment_id, "experiment_id")
        for name in ("population", "ensemble_size"):
            if (value := getattr(self, name)) is not None:
                require_index(value, name, least=1)
        require_flag(self.ask_all, "ask_all")
        require_function(self.on_progress, "on_progress")


def predict_in_lab(
    client: Connection, asked: AskedEnsemble, questions: Iterable[Question]
) -> Iterator[Prediction]:
    """Return the predictions of `Client.predict`; the questions are checked at once.

    Raises:
        InvalidInputError: there is no question, or one cannot be sent.
    """
    require_several(questions, "questions", "rows")
    rows = [_encoded(number, question) for number, question in enumerate(questions)]
    if not rows:
        raise InvalidInputError(
            "there are no questions", field="questions", remedy="give one row at least"
        )
    request = experiments.Questions(
        of=asked.experiment_id,
        population=asked.population,
        ensemble_size=asked.ensemble_size,
        rows=rows,
        ask_all=asked.ask_all,
    )
    return _predictions(client, request, asked.on_progress)


def _predictions(
    client: Connection, request: experiments.Questions, on_progress: OnProgress
) -> Iterator[Prediction]:
    """Yield the predictions of a request once its experiment has ended.

    An equal request finds the experiment of an earlier one. If that failed or was cancelled,
    another experiment reuses its finished answers.
    """
    from modnorm.analysis.run_files import PREDICTIONS  # noqa: PLC0415 - loads pandas
    from modnorm.client.export import cached_run  # noqa: PLC0415 - loads pandas

    content = hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
    experiment = client.call(ask_questions(request, content))
    if experiment.state in _AGAIN:
        experiment = client.call(ask_questions(request, str(uuid.uuid4())))
    rows = len(request.rows)
    for event in watch_messages(client, experiment.id):
        progress = event.progress
        on_progress(progress.jobs_done * rows, progress.jobs_total * rows)
    ended = client.call(get_experiment(experiment.id))
    if ended.state in _AGAIN:
        raise PreconditionError(
            ended.error or f"the experiment {ended.id} is {state_name(ended.state)}",
            field="questions",
            remedy=ended.remedy or "send the request again; finished answers are reused",
        )
    yield from read_predictions(cached_run(client, ended.id) / PREDICTIONS)


def _encoded(number: int, question: Question) -> str:
    try:
        return json.dumps(dict(question), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"row {number}: not JSON: {error}",
            field="questions",
            remedy="give each question as a mapping from the task's columns to values",
        ) from error
