"""Decoding of many prompts in a bounded number of slots, greedy or sampled."""

import math
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from modnorm.engines.causal import CausalModel, Draws, SlotCache
from modnorm.engines.protocol import Finish, Sampling, engine_failures

PREFILL_TOKENS = 8_192
"""Tokens of one prefill pass, padding included. This bounds the activations."""
CPU_PREFILL_TOKENS = 1_024
"""Tokens of one prefill pass on a CPU, so that activations fit its caches."""
MIN_SHARED_PREFIX = 16
"""Shortest common prefix in tokens that gets a prefill pass of its own."""
REFILL = 0.25
"""Share of the slots that must be free before waiting prompts join, unless all of them fit.
Larger prefills cost less for each prompt."""


@dataclass
class DecodedSequence:
    """A prompt and the tokens generated for it so far."""

    index: int
    prompt: Sequence[int]
    generated: list[int] = field(default_factory=list)
    finish: Finish | None = None
    numbers: random.Random | None = None
    """Random numbers of a sampled sequence, one for each token; None for a greedy one."""

    @property
    def position(self) -> int:
        """Position of the last token."""
        return len(self.prompt) + len(self.generated) - 1

    def append(self, token: int, stop_ids: Collection[int], max_tokens: int) -> None:
        """Add a token; set `finish` if it is the last."""
        self.generated.append(token)
        if token in stop_ids:
            self.finish = Finish.STOP
        elif len(self.generated) >= max_tokens:
            self.finish = Finish.LENGTH


class Decoder:
    """Decoding of one request: sequences join free slots and free them when they finish."""

    def __init__(  # noqa: PLR0913 - bounds by keyword
        self,
        model: CausalModel,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int,
        stop_ids: Collection[int],
        max_rows: int,
        max_cache_tokens: int,
        sampling: Sampling | None = None,
    ) -> None:
        self._model = model
        self._sampling = sampling
        self._max_tokens = max_tokens
        self._stop_ids = stop_ids
        order = sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), index))
        self._waiting = deque(
            DecodedSequence(
                index,
                prompts[index],
                numbers=random.Random(sampling.seeds[index]) if sampling else None,
            )
            for index in order
        )
        self._live: list[DecodedSequence] = []
        self._shared = _shared_tokens(prompts)
        self._shared_is_unread = self._shared > 0
        """Whether the shared prefix is not in the cache yet."""
        on_cpu = model.device.type == "cpu"
        self._pass_tokens = CPU_PREFILL_TOKENS if on_cpu else PREFILL_TOKENS
        columns = max(map(len, prompts)) + max_tokens
        self._rows = max(1, min(len(prompts), max_rows, max_cache_tokens // columns))
        with engine_failures("allocating the key-value cache"):
            self._cache = SlotCache(
                model.config,
                rows=self._rows,
                columns=columns,
                dtype=model.dtype,
                device=model.device,
            )

    def run(self, poll: Callable[[], None]) -> Iterator[DecodedSequence]:
        """Yield sequences as they finish."""
        while self._live or self._waiting:
            poll()
            with engine_failures("generation"):
                self._forward()
                finished = self._release_finished()
            yield from finished

    def _forward(self) -> None:
        if self._shared_is_unread:
            prefix = self._waiting[0].prompt[: self._shared]
            self._read([prefix], first=0, start=0)
            self._cache.share(self._shared)
            self._shared_is_unread = False
        elif self._can_refill():
            self._prefill()
        else:
            self._step()

    def _can_refill(self) -> bool:
        """Whether waiting prompts can join now."""
        free = self._rows - len(self._live)
        return 0 < min(len(self._waiting), math.ceil(REFILL * self._rows)) <= free

    def _prefill(self) -> None:
        joining = self._next_prompts()
        suffixes = [sequence.prompt[self._shared :] for sequence in joining]
        draws = self._draws(joining)
        tokens = self._read(suffixes, first=len(self._live), start=self._shared, draws=draws)
        self._live.extend(joining)
        self._append(joining, tokens)

    def _read(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        first: int,
        start: int,
        draws: Draws | None = None,
    ) -> list[int]:
        """Read prompts into consecutive slots, from a start position; return each next token."""
        longest = max(map(len, prompts))
        padded = [[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts]
        device = self._model.device
        return self._model.prefill(
            torch.tensor(padded, device=device),
            torch.tensor([len(prompt) for prompt in prompts], device=device),
            self._cache,
            first=first,
            start=start,
            draws=draws,
        )

    def _draws(self, sequences: Sequence[DecodedSequence]) -> Draws | None:
        """Return a random number for the next token of each sequence; None for greedy tokens."""
        if self._sampling is None:
            return None
        numbers = [each.numbers.random() for each in sequences if each.numbers]
        return Draws(self._sampling.temperature, numbers, self._sampling.top_p)

    def _next_prompts(self) -> list[DecodedSequence]:
        """Return the next prompts that fit the free slots and one prefill pass."""
        joining: list[DecodedSequence] = []
        free = self._rows - len(self._live)
        while self._waiting and len(joining) < free:
            tokens = (len(joining) + 1) * (len(self._waiting[0].prompt) - self._shared)
            if joining and tokens > self._pass_tokens:
                break
            joining.append(self._waiting.popleft())
        return joining

    def _step(self) -> None:
        tokens = self._model.step(
            [sequence.generated[-1] for sequence in self._live],
            [sequence.position for sequence in self._live],
            self._cache,
            self._draws(self._live),
        )
        self._append(self._live, tokens)

    def _append(self, sequences: Sequence[DecodedSequence], tokens: Sequence[int]) -> None:
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.append(token, self._stop_ids, self._max_tokens)

    def _release_finished(self) -> list[DecodedSequence]:
        """Free the slots of finished sequences; move the last live slots into the gaps."""
        finished = [sequence for sequence in self._live if sequence.finish]
        if not finished:
            return finished
        live = len(self._live) - len(finished)
        gaps = [slot for slot in range(live) if self._live[slot].finish]
        movers = [slot for slot in range(live, len(self._live)) if not self._live[slot].finish]
        columns = max((self._live[slot].position for slot in movers), default=0)
        if movers:
            self._cache.move(movers, gaps, columns)
        for gap, mover in zip(gaps, movers, strict=True):
            self._live[gap] = self._live[mover]
        del self._live[live:]
        return finished


def _shared_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Return the length of the prefix to read once; each prompt keeps a token of its own."""
    if len(prompts) == 1:
        return 0
    first, last = min(map(tuple, prompts)), max(map(tuple, prompts))
    shortest = min(map(len, prompts))
    different = (index for index in range(shortest) if first[index] != last[index])
    shared = min(next(different, shortest), shortest - 1)
    return shared if shared >= MIN_SHARED_PREFIX else 0
