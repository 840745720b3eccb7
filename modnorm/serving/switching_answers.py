"""The engine's thread: it answers waiting requests in batches, one model after another."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from modnorm.engines import Engine
from modnorm.errors import EngineError, InvalidInputError
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.predictor import Question, vote_on_questions
from modnorm.prediction.ranked_votes import Prediction
from modnorm.serving.api_errors import ServerMetrics, unavailable
from modnorm.tasks import Task

BATCH = 256
"""Most requests of one batch."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Job:
    model: str
    question: Question
    answer: Future[Prediction] = field(default_factory=Future)


class SwitchingAnswers:
    """Answers questions in a thread that owns the engine, and switches between experts.

    Requests of one model and cap that wait at the same time share a batch. The engine writes the
    weights of the batch's experts one after another, and holds the base between batches.
    The thread ends with an engine that failed, whose process may have ended.
    """

    def __init__(
        self,
        load: Callable[[], Engine],
        models: Mapping[str, EnsembleDefinition],
        task: Task,
        metrics: ServerMetrics,
    ) -> None:
        self._load = load
        self._models = models
        self._task = task
        self._metrics = metrics
        self._waiting: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._stopping = self._failed = False
        self._loading: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    async def start(self) -> None:
        """Start the thread and wait until it has loaded the engine."""
        self._loading.set_running_or_notify_cancel()  # a cancelled start must not cancel it
        self._thread.start()
        await asyncio.wrap_future(self._loading)

    @property
    def is_ready(self) -> bool:
        """Whether the engine is loaded and its thread runs."""
        return self._loading.done() and self._thread.is_alive() and not self._stopping

    @property
    def is_alive(self) -> bool:
        """Whether the engine works, or has not been started."""
        return self._thread.ident is None or (self._thread.is_alive() and not self._failed)

    @property
    def is_loading(self) -> bool:
        """Whether the thread loads the engine, which nothing can interrupt."""
        return self._thread.is_alive() and not self._loading.done()

    async def answer(self, model: str, question: Question) -> Prediction:
        """Return a model's answer; a cancelled question leaves its batch, or is dropped."""
        job = _Job(model, question)
        with self._changed:
            if self._stopping or not self.is_alive:
                raise unavailable("the server is stopping")
            self._waiting.append(job)
            self._changed.notify()
        return await asyncio.wrap_future(job.answer)

    def stop(self) -> None:
        """Answer the questions that wait, then free the engine and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
            if self.is_loading:
                return
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            engine = self._load()
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            self._loading.set_exception(error)
            return
        self._loading.set_result(None)
        try:
            while batch := self._next_batch():
                if not self._answer(engine, batch):
                    logger.error("the engine has failed")
                    self._failed = True
                    self._refuse_waiting()  # its end may take long
                    break
            with suppress(EngineError):  # its process may have ended
                engine.close()
        finally:
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Refuse the requests that nothing will answer, and all later ones."""
        with self._changed:
            self._stopping = True
            waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(unavailable("the engine has failed"))

    def _next_batch(self) -> Sequence[_Job]:
        """Return waiting requests of one model and cap, oldest first; none at the end."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if not self._waiting:
                    return ()
                first = self._waiting[0]
                alike = (
                    job
                    for job in self._waiting
                    if job.model == first.model
                    and job.question.max_tokens == first.question.max_tokens
                )
                batch = list(islice(alike, BATCH))
                taken = set(map(id, batch))
                self._waiting = deque(job for job in self._waiting if id(job) not in taken)
                # Cancelled requests leave the batch here; running ones cannot be cancelled.
                running = [job for job in batch if job.answer.set_running_or_notify_cancel()]
                if running:
                    return running

    def _answer(self, engine: Engine, batch: Sequence[_Job]) -> bool:
        """Answer a batch; return whether the engine works."""
        ensemble, questions = self._models[batch[0].model], [job.question for job in batch]
        try:
            predictions = list(vote_on_questions(engine, ensemble, self._task, questions))
        except InvalidInputError as error:
            return self._isolate(engine, batch, error)
        except Exception as error:  # noqa: BLE001 - the requests' handlers report it
            for job in batch:
                job.answer.set_exception(error)
            return not isinstance(error, EngineError)
        self._metrics.count_batch(len(batch))
        for job, prediction in zip(batch, predictions, strict=True):
            job.answer.set_result(prediction)
        return True

    def _isolate(self, engine: Engine, batch: Sequence[_Job], error: InvalidInputError) -> bool:
        """Answer each request of a batch alone, so that only the one at fault fails."""
        if len(batch) == 1:
            batch[0].answer.set_exception(error)
            return True
        works = [self._answer(engine, [job]) for job in batch]
        return all(works)
