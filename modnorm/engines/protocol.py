"""The interface of inference engines."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from modnorm.checkpoint.families import Layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import EngineError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor

if TYPE_CHECKING:
    from modnorm.perturbation.lineage import Lineage


@contextmanager
def engine_failures(action: str) -> Iterator[None]:
    """Convert failures of torch, CUDA or the machine inside the context to `EngineError`.

    Raises:
        EngineError: memory ran out, a kernel failed, a file could not be read.
    """
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        raise EngineError(f"{action} failed: {error}") from error


def no_poll() -> None:
    """Poll nothing between decode steps."""


class Finish(StrEnum):
    """The reason why a completion ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished answer."""

    index: int
    """Position of its prompt in the request."""
    text: str
    """Decoded text without special tokens, and without the token that ended it."""
    tokens: int
    """Generated tokens, the stop token included."""
    finish: Finish


@dataclass(frozen=True, slots=True)
class Sampling:
    """Random completions.

    On equal logits a completion depends on its prompt's seed alone, not on the other prompts.
    """

    temperature: float
    """Divisor of the logits, above 0."""
    seeds: Sequence[int]
    """Seed of each prompt of the request, 0 to 2**63 - 1."""
    top_p: float = 1.0
    """Tokens are drawn from the likeliest whose probabilities add up to this; 1 for all."""


@dataclass(frozen=True, slots=True)
class GenerationLimits:
    """Bounds of completions, one a prompt; greedy by default (paper, app. B.2)."""

    max_tokens: int
    sampling: Sampling | None = None
    """How tokens are drawn; None for greedy decoding."""


class Engine(Protocol):
    """A loaded model whose weights can become any candidate and return to the base, bit for bit.

    One thread uses an engine. Outside `candidate` it holds the base: the model, or the trained
    state of the last `rebase`. `replace_model` changes the model.
    """

    @property
    def layout(self) -> Layout:
        """All physical tensors, in canonical order."""

    @property
    def model_digest(self) -> str:
        """Digest of the loaded checkpoint."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Engine, library versions and device, on which rounding may depend; kept with scores."""

    def replace_model(self, checkpoint: Checkpoint) -> None:
        """Hold another model of the same architecture, as if the engine had been loaded with it.

        It takes the time to read the weights; a start of vLLM takes a minute.

        Raises:
            IncompatibleError: configuration or dtype differ; nothing has changed.
            PreconditionError: a candidate is held, or a request runs.
            ModnormError: reading the weights failed. The engine must be closed.
        """

    def rebase(self, lineage: "Lineage | None", *, poll: Callable[[], None] | None = None) -> None:
        """Make the end of a lineage the base; None for the model as it is on disk.

        The engine applies the steps that the present base lacks, or all steps from the model.

        Args:
            lineage: The steps to the new base.
            poll: Called between steps. Its exceptions stop the rebase; the next rebase continues
                from the state reached.

        Raises:
            IncompatibleError: the lineage is of another model, or its noise scheme is unknown.
            PreconditionError: a candidate is held, or a request runs.
            EngineError: the infrastructure failed.
        """

    def moments(self) -> Sequence[tuple[float, float]]:
        """Mean and unbiased variance of each physical tensor's weights, in canonical order."""

    def candidate(
        self, descriptor: Descriptor, scale_map: ScaleMap
    ) -> AbstractContextManager[Descriptor]:
        """Hold exactly the candidate inside the context; yield the descriptor, resolved.

        Raises:
            IncompatibleError: the scale map is of another model or layout, or the candidate is
                drawn around another base.
            PreconditionError: another candidate is held.
            EngineError: the infrastructure failed.
        """

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        *,
        poll: Callable[[], None] | None = None,
    ) -> Generator[Completion]:
        """Yield completions as they finish, in any order; closing the generator aborts the others.

        The same request gives the same tokens, independent of earlier requests. A completion
        depends on the other prompts of the request through floating-point rounding only.

        Args:
            prompts: Token ids of each prompt, none empty.
            limits: Bounds of each completion.
            poll: Called between decode steps; its exceptions abort the request.

        Raises:
            InvalidInputError: a prompt is empty, has a token outside the vocabulary, or does not
                fit the model with its completion.
            CandidateError: the model produced non-finite logits.
            EngineError: the infrastructure failed.
        """

    def weights_sha256(self) -> str:
        """SHA-256 over the bytes of all physical tensors, in canonical order and layout."""

    def close(self) -> None:
        """Free the model; the engine must not be used afterwards."""
