"""How a server answers: the interface, and the choice between its two implementations."""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Protocol

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.engines import EngineSettings, load_engine, make_adapter_engine, runs_adapters
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.adapters import require_adapters, write_adapter
from modnorm.prediction.ensemble_adapters import vllm_rank
from modnorm.prediction.ensemble_definition import Expert
from modnorm.prediction.ranked_votes import Prediction
from modnorm.serving.adapter_answers import AdapterAnswers
from modnorm.serving.metrics import ServerMetrics
from modnorm.serving.served_ensemble import Question, ServedEnsemble
from modnorm.serving.switching_answers import SwitchingAnswers

ADAPTER_SEQUENCES = 512
"""Most sequences that adapters decode at once: a question of K experts takes K."""


class Answering(Protocol):
    """Answers questions with an ensemble and its experts; used by one event loop."""

    async def start(self) -> None:
        """Load the model.

        Raises:
            IncompatibleError: the engine cannot run the model.
            EngineError: the infrastructure failed.
        """

    def stop(self) -> None:
        """Answer the questions that wait, or drop them, and free the model.

        It does not wait for a load.
        """

    @property
    def is_loading(self) -> bool:
        """Whether a thread loads the model; only the end of the process interrupts it."""

    @property
    def is_ready(self) -> bool:
        """Whether questions are answered."""

    @property
    def is_alive(self) -> bool:
        """Whether the engine works, or has not been started."""

    def answer(self, question: Question) -> AsyncGenerator[str | Prediction]:
        """Yield pieces of the text if the question streams, then the prediction.

        Closing the generator drops the question.

        Raises:
            ApiError: nothing is answered now.
            InvalidInputError: the task's code raised.
            EngineError: the infrastructure failed.
        """


def choose_answering(ensemble: ServedEnsemble, engine: str, metrics: ServerMetrics) -> Answering:
    """Return the fastest way in which an engine can answer.

    In vLLM, low-rank experts run as adapters in one batch, on a GPU those of a 16-bit base. All
    others take turns in one engine.

    Args:
        ensemble: The ensemble and its experts.
        engine: Engine by name.
        metrics: Counts the work.

    Raises:
        InvalidInputError: there is no such engine.
        IncompatibleError: vLLM is installed but cannot be imported.
    """
    rank = _adapter_rank(ensemble.definition.scale_map)
    if rank is not None and runs_adapters(engine, ensemble.base):
        return _adapters(ensemble, rank)
    settings = EngineSettings(max_model_len=ensemble.most_tokens)
    load = partial(load_engine, engine, ensemble.base, settings)
    decoder = PromptEncoder(ensemble.base)  # that of the ensemble is used by another thread
    return SwitchingAnswers(load, ensemble.models, ensemble.task, metrics, decoder)


def _adapter_rank(scale_map: ScaleMap) -> int | None:
    """Return vLLM's rank of candidates that can be adapters; None of others."""
    try:
        return vllm_rank(require_adapters(scale_map))
    except InvalidInputError:
        return None


def _adapters(ensemble: ServedEnsemble, rank: int) -> AdapterAnswers:
    definition, base = ensemble.definition, ensemble.base
    settings = EngineSettings(max_model_len=ensemble.most_tokens, max_num_seqs=ADAPTER_SEQUENCES)
    load = partial(make_adapter_engine, base, rank, definition.ensemble_size, settings)

    def write(expert: Expert, folder: Path) -> None:
        write_adapter(base, expert.descriptor, definition.scale_map, folder)

    return AdapterAnswers(load, ensemble.models, definition, ensemble.task, write)
