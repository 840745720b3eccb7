"""Answers of an ensemble whose experts run as adapters of one base, in one batch."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from modnorm.engines.protocol import Completion, GenerationLimits
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert
from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction, prediction_of
from modnorm.prediction.voting_experts import expert_answer
from modnorm.search.settled_votes import RowVotes
from modnorm.serving.api_errors import unavailable
from modnorm.serving.served_ensemble import Question
from modnorm.tasks import Task

_Pieces = asyncio.Queue[tuple[int, str | Completion | Exception]]
"""Pieces of the experts' answers to one question, each after the expert's rank."""

_LOOK_SECONDS = 0.5
"""Pause between two looks whether the engine works."""

logger = logging.getLogger(__name__)


class AdapterEngine(Protocol):
    """A base whose requests each name an adapter; used by one event loop."""

    async def start(self) -> None:
        """Load the base.

        Raises:
            EngineError: the infrastructure failed.
        """

    async def add(self, adapter: int, folder: Path) -> None:
        """Load an adapter in PEFT's format; the folder is not read again.

        Args:
            adapter: Number of the adapter, from 1.
            folder: Its files.

        Raises:
            EngineError: it cannot be loaded.
        """

    def stop(self) -> None:
        """Free the model, without waiting for its load; requests in progress fail."""

    @property
    def is_loading(self) -> bool:
        """Whether a thread loads the base; only the end of the process interrupts it."""

    @property
    def is_alive(self) -> bool:
        """Whether the engine works, or has not been started."""

    def generate(
        self, adapter: int, prompt: Sequence[int], limits: GenerationLimits, *, streams: bool
    ) -> AsyncGenerator[str | Completion]:
        """Yield pieces of the text if it streams, then the completion; closing it aborts.

        Raises:
            EngineError: the infrastructure failed.
        """


class AdapterAnswers:
    """Answers questions by asking all experts at once.

    Once no missing answer can change a vote, the experts that still answer are aborted. An engine
    that failed is loaded again; meanwhile requests are refused.

    Args:
        load: Makes an engine that runs the adapters, not yet started.
        models: The definition behind each model's name.
        ensemble: The ensemble, whose experts are the adapters.
        task: Extracts votes.
        write: Writes an expert as an adapter to a new folder.
    """

    def __init__(
        self,
        load: Callable[[], AdapterEngine],
        models: Mapping[str, EnsembleDefinition],
        ensemble: EnsembleDefinition,
        task: Task,
        write: Callable[[Expert, Path], object],
    ) -> None:
        self._load = load
        self._engine = load()
        self._models = models
        self._numbers = {index: number for number, index in enumerate(ensemble.indices, 1)}
        self._experts = ensemble.experts
        self._task = task
        self._write = write
        self._asking: set[asyncio.Task[None]] = set()
        self._is_ready = False
        self._has_failed = False
        """Whether the engine could not be loaded again."""
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the base and the adapters."""
        await self._load_experts()
        self._watching = asyncio.create_task(self._replace_failed())

    async def _load_experts(self) -> None:
        await self._engine.start()
        for expert in self._experts:
            with TemporaryDirectory(prefix="modnorm-adapter-") as scratch:
                folder = Path(scratch) / "adapter"
                await _to_end(asyncio.to_thread(self._write, expert, folder))
                await self._engine.add(self._numbers[expert.index], folder)
        self._is_ready = True

    def stop(self) -> None:
        """Drop the questions that are not answered, and free the model."""
        self._is_ready = False
        if self._watching is not None:
            self._watching.cancel()
        self._engine.stop()

    @property
    def is_ready(self) -> bool:
        """Whether questions are answered."""
        return self._is_ready and self._engine.is_alive

    @property
    def is_alive(self) -> bool:
        """Whether the engine works, has not been started, or is loaded again."""
        return not self._has_failed

    @property
    def is_loading(self) -> bool:
        """Whether a thread loads the base; only the end of the process interrupts it."""
        return self._engine.is_loading

    async def answer(self, question: Question) -> AsyncGenerator[str | Prediction]:
        """Yield pieces of the text if the question streams, then the prediction."""
        if not self.is_ready:
            raise unavailable("the server is stopping, or its engine has failed")
        experts = self._models[question.model].experts
        pieces: _Pieces = asyncio.Queue()
        asking = [self._ask(rank, experts[rank], question, pieces) for rank in range(len(experts))]
        answers: dict[int, ExpertAnswer] = {}
        votes = RowVotes(len(experts))
        try:
            while not votes.settled:
                rank, piece = await pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, str):
                    yield piece
                    continue
                answers[rank] = expert_answer(experts[rank], self._task, question.row, piece)
                votes.add(rank, answers[rank].vote)
        finally:
            for each in asking:
                each.cancel()
        yield prediction_of(0, [answers[rank] for rank in sorted(answers)], len(experts))

    async def _replace_failed(self) -> None:
        """Replace the engine whenever it has failed, until a new one cannot be loaded."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._engine.is_alive:
                continue
            self._is_ready = False
            logger.warning("the engine has failed and is loaded again")
            try:
                await asyncio.to_thread(self._engine.stop)
                self._engine = self._load()
                await self._load_experts()
            except Exception:
                logger.exception("the engine cannot be loaded again")
                self._has_failed = True
                return

    def _ask(
        self, rank: int, expert: Expert, question: Question, pieces: _Pieces
    ) -> asyncio.Task[None]:
        """Ask an expert in a task of its own: an abort ends even if its request is cancelled."""
        asking = asyncio.create_task(self._pass_on(rank, expert, question, pieces))
        self._asking.add(asking)  # the loop itself refers to tasks weakly
        asking.add_done_callback(self._asking.discard)
        return asking

    async def _pass_on(
        self, rank: int, expert: Expert, question: Question, pieces: _Pieces
    ) -> None:
        limits = GenerationLimits(question.max_tokens)
        adapter = self._numbers[expert.index]
        answer = self._engine.generate(adapter, question.prompt, limits, streams=question.streams)
        try:
            async with aclosing(answer):
                async for piece in answer:
                    pieces.put_nowait((rank, piece))
        except Exception as error:  # noqa: BLE001 - `answer` raises it
            pieces.put_nowait((rank, error))


async def _to_end(work: Awaitable[object]) -> None:
    """Await some work to its end, even if the caller is cancelled: it uses the caller's files."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    finally:
        await asyncio.wait([task])
