"""The Python client of a lab for asyncio: the methods and results of `Client`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.analysis.listing import AsyncListing
from modnorm.client import watch as watching
from modnorm.client.async_connection import AsyncConnection
from modnorm.client.calls import (
    cancel_experiment,
    create_experiment,
    get_experiment,
    list_candidates,
    list_experiments,
)
from modnorm.client.client import Client
from modnorm.client.experiments import (
    Event,
    Experiment,
    ExperimentSummary,
    event_from_message,
    experiment_from_message,
    summary_from_message,
)
from modnorm.client.finished import check_succeeded
from modnorm.client.predicting import AskedEnsemble, PredictionStream, prediction_streams
from modnorm.errors import ModnormError
from modnorm.prediction.ranked_votes import OnProgress, Prediction, ignore_progress
from modnorm.spec import ExperimentSpec

if TYPE_CHECKING:
    from modnorm.analysis.run import Run
    from modnorm.client.async_run import AsyncRun


class AsyncClient(AsyncConnection):
    """A connection to a lab from one event loop; it connects at the first call.

    A cancelled task cancels its call.
    """

    async def submit(
        self, spec: ExperimentSpec | Path | str, request_id: str | None = None
    ) -> Experiment:
        """Create an experiment, with the arguments and errors of `Client.submit`."""
        call = await asyncio.to_thread(create_experiment, spec, request_id)  # it reads files
        return experiment_from_message(await self.call(call))

    async def get(self, experiment_id: str) -> Experiment:
        """Return an experiment with the results it has so far."""
        return experiment_from_message(await self.call(get_experiment(experiment_id)))

    def list(self) -> AsyncListing[ExperimentSummary]:
        """Return all experiments, newest first, without their results."""
        return AsyncListing(ExperimentSummary, self._summaries)

    def watch(self, experiment_id: str, cursor: int = 0) -> AsyncIterator[Event]:
        """Yield events after `cursor` until the experiment ends, as `Client.watch` does."""
        return self._events(watching.Watch(experiment_id, cursor, self.patience))

    async def _events(self, watch: watching.Watch) -> AsyncIterator[Event]:
        while True:
            try:
                async with aclosing(self.stream(watch.call(), watching.STREAM_SECONDS)) as events:
                    async for event in events:
                        watch.note(event)
                        yield event_from_message(event)
                watch.check_end()
            except ModnormError as error:
                pause = watch.pause(error)
            else:
                return
            await asyncio.sleep(pause)

    async def cancel(self, experiment_id: str) -> Experiment:
        """Ask an experiment to stop; repeating it changes nothing."""
        return experiment_from_message(await self.call(cancel_experiment(experiment_id)))

    async def run(self, experiment_id: str) -> "AsyncRun":
        """Return a finished experiment; its answers and votes are read from the lab when needed.

        Raises:
            PreconditionError: it has not succeeded.
        """
        from modnorm.client.async_run import AsyncLabRun  # noqa: PLC0415 - loads numpy

        experiment = await self.call(get_experiment(experiment_id))
        check_succeeded(experiment)
        candidates = [each async for each in self.pages(partial(list_candidates, experiment_id))]
        return AsyncLabRun(self, experiment, candidates).run

    def predict(  # noqa: PLR0913 - what is asked, and how
        self,
        experiment_id: str,
        questions: Iterable[Mapping[str, object]],
        population: int | None = None,
        ensemble_size: int | None = None,
        *,
        ask_all: bool = False,
        on_progress: OnProgress = ignore_progress,
    ) -> AsyncIterator[Prediction]:
        """Yield an ensemble's answers, with the arguments and errors of `Client.predict`."""
        asked = AskedEnsemble(experiment_id, population, ensemble_size, ask_all, on_progress)
        return self._all_predictions(prediction_streams(asked, questions, self.patience))

    async def _all_predictions(
        self, streams: Sequence[PredictionStream]
    ) -> AsyncIterator[Prediction]:
        for stream in streams:
            async with aclosing(self._predictions(stream)) as predictions:
                async for prediction in predictions:
                    yield prediction

    async def _predictions(self, stream: PredictionStream) -> AsyncGenerator[Prediction, None]:
        while True:
            try:
                async with aclosing(self.stream(stream.call())) as responses:
                    async for response in responses:
                        if (prediction := stream.note(response)) is not None:
                            yield prediction
                stream.check_end()
            except ModnormError as error:
                pause = stream.pause(error)
            else:
                return
            await asyncio.sleep(pause)

    async def download(self, experiment_id: str, directory: Path | str) -> "Run":
        """Write the directory of a finished experiment and return the run in it.

        A thread writes it, over a connection of its own; a cancelled task closes that.

        Raises:
            PreconditionError: it has not succeeded.
            ConflictError: the directory holds something else, or another process works in it.
        """
        self._check_open()
        with Client(
            self._target,
            timeout=self._timeout,
            patience=self.patience,
            credentials=self._credentials,
        ) as client:
            return await asyncio.to_thread(client.download, experiment_id, directory)

    async def _summaries(self) -> AsyncIterator[ExperimentSummary]:
        async for message in self.pages(list_experiments):
            yield summary_from_message(message)
