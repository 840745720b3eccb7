"""Predictions by the evaluators of a lab, in requests of bounded size."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from modnorm.arguments import (
    require_flag,
    require_function,
    require_index,
    require_several,
    require_text,
)
from modnorm.client import calls
from modnorm.client.connection import Connection
from modnorm.client.watch import Reconnection
from modnorm.errors import InvalidInputError, ModnormError, UnavailableError
from modnorm.prediction.ranked_votes import OnProgress, Prediction
from modnorm.v1 import prediction_pb2 as messages
from modnorm.wire.prediction_conversions import prediction_from_proto

MAX_QUESTIONS = 1000
MAX_BYTES = 2**20 - 2**14
"""Bytes of the questions of one request; the lab accepts requests of 1 MiB."""
_LENGTH_BYTES = 6
"""Bytes of a question's tag and length in a message."""

Question = Mapping[str, object]


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

    def request(self, questions: Sequence[str], received: int) -> messages.PredictRequest:
        """Return the request for the predictions that follow the received ones."""
        return messages.PredictRequest(
            experiment_id=self.experiment_id,
            population=self.population,
            ensemble_size=self.ensemble_size,
            questions=questions,
            ask_all=self.ask_all,
            after=received,
        )


def predict_in_lab(
    client: Connection, asked: AskedEnsemble, questions: Iterable[Question]
) -> Iterator[Prediction]:
    """Return the predictions of `Client.predict`; the questions are checked at once.

    Raises:
        InvalidInputError: there is no question, or one cannot be sent.
    """
    require_several(questions, "questions", "rows")
    texts = [_encoded(number, question) for number, question in enumerate(questions)]
    if not texts:
        raise InvalidInputError(
            "there are no questions", field="questions", remedy="give one row at least"
        )
    batches = list(_batches(texts))
    starts = accumulate(map(len, batches), initial=0)
    return chain.from_iterable(
        _followed(client, asked, batch, first_row, len(texts))
        for first_row, batch in zip(starts, batches, strict=False)
    )


def _followed(
    client: Connection, asked: AskedEnsemble, batch: Sequence[str], first_row: int, rows: int
) -> Iterator[Prediction]:
    """Yield the predictions of one request; open its stream again after it broke."""
    connection = Reconnection(client.patience)
    received = 0
    while True:
        try:
            connection.opened()
            for response in client.stream(calls.predict(asked.request(batch, received))):
                connection.heard()
                if response.WhichOneof("result") == "prediction":
                    received += 1
                    yield prediction_from_proto(response.prediction, first_row)
                else:
                    size = response.progress.answers_total // len(batch)
                    done = first_row * size + response.progress.answers_done
                    asked.on_progress(done, rows * size)
            if received < len(batch):
                raise UnavailableError("the stream of predictions ended before the last one")
        except ModnormError as error:
            pause = connection.pause(error)
        else:
            return
        time.sleep(pause)


def _encoded(number: int, question: Question) -> str:
    try:
        text = json.dumps(dict(question), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"row {number}: not JSON: {error}",
            field="questions",
            remedy="give each question as a mapping from the task's columns to values",
        ) from error
    if len(text) > MAX_BYTES:
        raise InvalidInputError(
            f"row {number}: a question has at most {MAX_BYTES} bytes", field="questions"
        )
    return text


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == MAX_QUESTIONS or size + len(text) > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text) + _LENGTH_BYTES
    yield batch
