"""Predictions by the evaluators of a lab, in requests of bounded size."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

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


class PredictionStream(Reconnection):
    """The position of one request for predictions.

    Args:
        asked: The ensemble.
        questions: The questions of this request, as JSON.
        first_row: Number of the questions before them.
        rows: Number of all questions.
        patience: Seconds without any connection after which to give up.
    """

    def __init__(
        self,
        asked: AskedEnsemble,
        questions: Sequence[str],
        first_row: int,
        rows: int,
        patience: float,
    ) -> None:
        super().__init__(patience)
        self._asked = asked
        self._questions = questions
        self._first_row = first_row
        self._rows = rows
        self._received = 0

    def call(self) -> calls.Call[messages.PredictResponse]:
        """Return the call that streams the predictions still missing."""
        self.opened()
        request = messages.PredictRequest(
            experiment_id=self._asked.experiment_id,
            population=self._asked.population,
            ensemble_size=self._asked.ensemble_size,
            questions=self._questions,
            ask_all=self._asked.ask_all,
            after=self._received,
        )
        return calls.predict(request)

    def note(self, response: messages.PredictResponse) -> Prediction | None:
        """Take note of a message; return its prediction, if it has one."""
        self.heard()
        if response.WhichOneof("result") == "prediction":
            self._received += 1
            return prediction_from_proto(response.prediction, self._first_row)
        progress, count = response.progress, len(self._questions)
        size = progress.answers_total // count
        done = self._first_row * size + progress.answers_done
        self._asked.on_progress(done, self._rows * size)
        return None

    def check_end(self) -> None:
        """Check that a stream ended after its last prediction.

        Raises:
            UnavailableError: it broke off.
        """
        if self._received < len(self._questions):
            raise UnavailableError("the stream of predictions ended before the last one")


def prediction_streams(
    asked: AskedEnsemble, questions: Iterable[Question], patience: float
) -> list[PredictionStream]:
    """Return one stream for each batch of questions, in order.

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
    return [
        PredictionStream(asked, batch, first_row, len(texts), patience)
        for first_row, batch in zip(starts, batches, strict=False)
    ]


def predict_in_lab(
    client: Connection, asked: AskedEnsemble, questions: Iterable[Question]
) -> Iterator[Prediction]:
    """Return the predictions of `Client.predict`; the questions are checked at once."""
    return _all_followed(client, prediction_streams(asked, questions, client.patience))


def _all_followed(client: Connection, streams: Sequence[PredictionStream]) -> Iterator[Prediction]:
    for stream in streams:
        yield from _followed(client, stream)


def _followed(client: Connection, stream: PredictionStream) -> Iterator[Prediction]:
    while True:
        try:
            for response in client.stream(stream.call()):
                if (prediction := stream.note(response)) is not None:
                    yield prediction
            stream.check_end()
        except ModnormError as error:
            pause = stream.pause(error)
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
