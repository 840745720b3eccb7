"""Predictions by the evaluators of a lab: an experiment that only votes."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping

from modnorm.arguments import require_flag, require_index, require_several, require_text
from modnorm.client.calls import ask_questions, get_experiment
from modnorm.client.connection import Connection
from modnorm.client.watch import watch_messages
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.prediction.ranked_votes import OnProgress, Prediction, read_predictions
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name

_AGAIN = {experiments.EXPERIMENT_STATE_FAILED, experiments.EXPERIMENT_STATE_CANCELLED}


def questions_of(
    experiment_id: str,
    population: int | None,
    ensemble_size: int | None,
    questions: Iterable[Mapping[str, object]],
    ask_all: bool,  # noqa: FBT001
) -> experiments.Questions:
    """Return the request of `Client.predict`."""
    require_text(experiment_id, "experiment_id")
    for name, value in (("population", population), ("ensemble_size", ensemble_size)):
        if value is not None:
            require_index(value, name, least=1)
    require_flag(ask_all, "ask_all")
    require_several(questions, "questions", "rows")
    rows = [_encoded(number, question) for number, question in enumerate(questions)]
    if not rows:
        raise InvalidInputError(
            "there are no questions", field="questions", remedy="give one row at least"
        )
    return experiments.Questions(
        of=experiment_id,
        population=population,
        ensemble_size=ensemble_size,
        rows=rows,
        ask_all=ask_all,
    )


def predict_in_lab(
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


def _encoded(number: int, question: Mapping[str, object]) -> str:
    try:
        return json.dumps(dict(question), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"row {number}: not JSON: {error}",
            field="questions",
            remedy="give each question as a mapping from the task's columns to values",
        ) from error
