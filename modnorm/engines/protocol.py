"""What the rest of the system asks of an inference engine."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from modnorm.checkpoint.layout import Layout
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor

if TYPE_CHECKING:
    from modnorm.perturbation.lineage import Lineage


class Finish(StrEnum):
    """Why a completion ended."""

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
class GenerationLimits:
    """Greedy decoding, one completion a prompt (paper, app. B.2)."""

    max_tokens: int


class Engine(Protocol):
    """A loaded model whose weights can become any candidate and come back, bit for bit.

    An engine is used by one thread. Outside `candidate` it holds the pristine base: the model, or
    the trained state that `rebase` named last.
    """

    @property
    def layout(self) -> Layout:
        """All physical tensors, in canonical order."""

    @property
    def model_digest(self) -> str:
        """Digest of the checkpoint that it holds."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Engine, library versions and device: what rounding may depend on, for the record."""

    def rebase(self, lineage: "Lineage | None", *, poll: Callable[[], None] | None = None) -> None:
        """Let the end of a lineage be the base from now on; None for the model as it is on disk.

        Steps that are missing from the state held are taken, or all of them from the model.

        Args:
            lineage: What leads there.
            poll: Called now and then on a long way; what it raises ends it, and the next way goes
                on from there.

        Raises:
            IncompatibleError: the lineage is of another model, or its noise is not known here.
            PreconditionError: a candidate is held.
            EngineError: the infrastructure failed.
        """

    def moments(self) -> Sequence[tuple[float, float]]:
        """Mean and unbiased variance of each physical tensor as it is, in canonical order."""

    def candidate(
        self, descriptor: Descriptor, scale_map: ScaleMap
    ) -> AbstractContextManager[Descriptor]:
        """Hold exactly the candidate inside the context; yield the descriptor, resolved.

        Raises:
            IncompatibleError: the scale map is of another model or layout, or the candidate is
                drawn around another state than the one held.
            PreconditionError: another candidate is held.
            EngineError: the infrastructure failed.
        """

    def has_room(self, prompts: Sequence[Sequence[int]], limits: GenerationLimits) -> bool:
        """Whether another candidate could answer such a request beside all that there are.

        Args:
            prompts: Token ids of each prompt.
            limits: Bounds of each completion.
        """

    def parked(self) -> AbstractContextManager[None]:
        """Let other candidates have the engine inside the context, in the middle of a request.

        For whoever holds a candidate and lets it answer: between two decode steps, from `poll`
        for instance. Outside again, the candidate and its request go on as if nothing had been
        between, token by token; what shares a batch may differ by a step from then on, and with
        it the rounding. What is raised inside ends both, and leaves the engine alone.

        Raises:
            PreconditionError: no candidate is held; or, on leaving, another one is.
            EngineError: the infrastructure failed.
        """

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        *,
        poll: Callable[[], None] | None = None,
    ) -> Generator[Completion]:
        """Yield completions as they finish, in any order; closing the generator aborts the rest.

        The same request gives the same tokens, whatever ran before. A completion depends on the
        other prompts of the request through floating-point rounding only.

        Args:
            prompts: Token ids of each prompt, none empty.
            limits: Bounds of each completion.
            poll: Called between decode steps; what it raises aborts the request.

        Raises:
            InvalidInputError: a prompt is empty, has a token that the model has not, or does not
                fit the model with its completion.
            CandidateError: the model produced non-finite logits.
            EngineError: the infrastructure failed.
        """

    def weights_sha256(self) -> str:
        """SHA-256 over the bytes of all physical tensors, in canonical order and layout."""

    def close(self) -> None:
        """Free the model; the engine is not used afterwards."""
