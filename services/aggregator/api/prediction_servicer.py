"""PredictionService: ensembles of finished experiments answer questions of clients."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import NoReturn

from typing_extensions import override

from modnorm.errors import InvalidInputError, PreconditionError, TooLargeError, UnavailableError
from modnorm.services.aggregator.experiments.change_notifier import Notifier
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.experiments.prediction_reader import Reading
from modnorm.services.aggregator.experiments.predictions import AskedQuestions, PredictionStore
from modnorm.services.aggregator.storage.states import ExperimentState
from modnorm.services.common.access import current_caller
from modnorm.services.common.shielded_tasks import ShieldedTasks
from modnorm.tasks.row_files import decode_row
from modnorm.v1 import prediction_pb2, prediction_pb2_grpc
from modnorm.wire.prediction_conversions import prediction_to_proto

SERVICE = "modnorm.v1.PredictionService"
MAX_QUESTIONS = 1000
MAX_REQUEST_BYTES = 2**20

Responses = AsyncIterator[prediction_pb2.PredictResponse]


class PredictionServicer(prediction_pb2_grpc.PredictionServiceServicer):
    """Streams predictions while evaluators answer; used in one event loop."""

    def __init__(
        self,
        predictions: PredictionStore,
        experiments: ExperimentStore,
        notifier: Notifier,
        follow_up: Callable[[Change], None],
        tasks: ShieldedTasks,
    ) -> None:
        self._predictions = predictions
        self._experiments = experiments
        self._notifier = notifier
        self._follow_up = follow_up
        self._tasks = tasks
        self._streams: Counter[str] = Counter()
        """Open streams by prediction."""
        self._closing = False

    def end_streams(self) -> None:
        """End all streams soon, before the server stops; their predictions are not paused."""
        self._closing = True

    @override
    async def Predict(self, request: prediction_pb2.PredictRequest, context: object) -> Responses:
        """Stream progress and predictions; pause the prediction when its last client leaves."""
        asked = _asked(request)
        scope = current_caller().scope
        if scope is not None:
            await asyncio.to_thread(self._experiments.check_visible, asked.experiment_id, scope)
        prediction_id = await self._tasks.run(self._open(asked), self._leave)
        self._streams[prediction_id] += 1
        try:
            async for response in self._responses(asked, prediction_id, request.after):
                yield response
        except (asyncio.CancelledError, GeneratorExit):
            self._leave(prediction_id)
            raise
        finally:
            self._streams[prediction_id] -= 1
            self._streams += Counter()  # drops zeros

    async def _responses(
        self, asked: AskedQuestions, prediction_id: str, received: int
    ) -> Responses:
        """Yield progress and the predictions after the first `received` ones."""
        reader = await asyncio.to_thread(self._predictions.reader, prediction_id)
        told: tuple[int, int] | None = None
        while True:
            if self._closing:
                raise UnavailableError("the aggregator is stopping", remedy="try again")
            seen = self._notifier.seen()
            reading = await asyncio.to_thread(reader.read)
            progress = reading.answers_done, reading.answers_total
            if progress != told:
                told = progress
                yield _progress(*progress)
            for prediction in reading.predictions[received:]:
                yield prediction_pb2.PredictResponse(prediction=prediction_to_proto(prediction))
            received = max(0, received - len(reading.predictions))
            if reading.complete:
                return
            if reading.state is ExperimentState.FAILED:
                _refuse(reading)
            if reading.state is ExperimentState.CANCELLED:  # another client of it has left
                await self._tasks.run(self._open(asked))
            await self._notifier.wait(prediction_id, seen)

    async def _open(self, asked: AskedQuestions) -> str:
        """Store or resume a prediction and publish its jobs; return its id."""
        change = await asyncio.to_thread(self._predictions.open, asked)
        self._follow_up(change)
        return change.experiment_id

    def _leave(self, prediction_id: str) -> None:
        """Pause a prediction whose client has left, once its stream has ended."""
        self._tasks.start(self._pause(prediction_id))

    async def _pause(self, prediction_id: str) -> None:
        """Pause a prediction unless another client waits for it."""
        if self._closing or self._streams[prediction_id]:
            return
        await asyncio.to_thread(self._predictions.pause, prediction_id)
        self._notifier.notify(prediction_id)


def _asked(request: prediction_pb2.PredictRequest) -> AskedQuestions:
    """Return the questions of a request, decoded.

    Raises:
        InvalidInputError: there are none or too many, or one is no JSON object.
        TooLargeError: they have too many bytes together.
    """
    count = len(request.questions)
    if not 1 <= count <= MAX_QUESTIONS:
        raise InvalidInputError(
            f"a request must have 1 to {MAX_QUESTIONS} questions, not {count}",
            field="questions",
            remedy="send several requests",
        )
    if request.ByteSize() > MAX_REQUEST_BYTES:
        raise TooLargeError(
            f"the request has more than {MAX_REQUEST_BYTES} bytes",
            field="questions",
            remedy="send several requests",
        )
    if request.after < 0:
        raise InvalidInputError("the number must not be negative", field="after")
    return AskedQuestions(
        experiment_id=request.experiment_id,
        population=request.population if request.HasField("population") else None,
        ensemble_size=request.ensemble_size if request.HasField("ensemble_size") else None,
        questions=[
            (f"row {number}", decode_row(text, f"row {number}", field="questions"))
            for number, text in enumerate(request.questions)
        ],
        ask_all=request.ask_all,
    )


def _progress(done: int, total: int) -> prediction_pb2.PredictResponse:
    progress = prediction_pb2.PredictionProgress(answers_done=done, answers_total=total)
    return prediction_pb2.PredictResponse(progress=progress)


def _refuse(reading: Reading) -> NoReturn:
    raise PreconditionError(
        reading.error, field="questions", remedy=reading.remedy or "send the request again"
    )
