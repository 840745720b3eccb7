"""Messages between the measurement of drafts and its engines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class DraftSettings:
    """Settings of a contender.

    Attributes:
        model: The checkpoint.
        drafts: Whether it drafts.
        share: Share of the GPU's memory.
        cache_bytes: Bytes of keys and values.
        invariant: Whether rounding is independent of the batch.
    """

    model: str
    drafts: bool
    share: float
    cache_bytes: int
    invariant: bool = False


@dataclass(frozen=True)
class CandidateRequest:
    """A candidate to answer prompts.

    Attributes:
        scale_map: Scale map as JSON.
        seed: Seed of the noise.
        radius: Scale of the noise.
        prompts: Token ids of each prompt.
        limit: Most tokens of an answer.
        spoken: Index of the recorded texts to say; None for the model's own.
        lengths: Tokens of each answer if texts are given.
    """

    scale_map: str
    seed: int
    radius: float
    prompts: Prompts
    limit: int
    spoken: int | None = None
    lengths: Sequence[int] = ()


@dataclass(frozen=True)
class Answered:
    """The answers of a candidate and what they took.

    Attributes:
        tokens: Tokens of each answer.
        seconds: Seconds from the switch to the restored base.
        steps: Steps.
        classes: Steps and seconds by the bound of the number of sequences.
        accepted: Number of sequences' steps by the tokens that they gave.
        misspoken: Number of answers that differ from the given texts.
    """

    tokens: Sequence[Sequence[int]]
    seconds: float
    steps: int
    classes: Mapping[int, tuple[int, float, float]]
    accepted: Mapping[int, int]
    misspoken: int = 0
