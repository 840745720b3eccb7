"""What one candidate took, and where its time went."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

BATCHES = (4, 16, 64, 128, 256)
"""Upper ends of the classes of batch sizes."""
Classes = dict[int, tuple[int, float, float]]
"""Steps, seconds and seconds of the processor by the upper end of their class of batch sizes.

The processor's are those of the thread that takes the steps. While it waits for the GPU it sleeps
(vLLM's events are blocking ones): where they are all of the seconds, the GPU waits for it.
"""


@dataclass(frozen=True)
class Outcome:
    """One candidate, scored or stopped. Times are of a clock that all processes share."""

    candidate: int
    score: float | None
    """Mean reward; None when it was stopped."""
    began: float
    ended: float
    switch: float
    """Seconds: making the candidate and restoring the base."""
    generate: float
    judge: float
    """Seconds of judging that no generation ran beside."""
    classes: Classes = field(default_factory=dict)
    astray: int = 0
    """Answers that have not as many tokens as were drawn: other work than the others did."""

    @property
    def steps(self) -> int:
        """Decode steps."""
        return sum(steps for steps, _, _ in self.classes.values())


class Stopwatch:
    """Times decode steps by the number of sequences that they had."""

    def __init__(self) -> None:
        self._classes: Classes = {}
        self._began: tuple[float, float] | None = None
        self._running = 0

    def step(self, running: int) -> None:
        """Note that a step begins, for so many sequences."""
        self.finish()
        self._began, self._running = (time.perf_counter(), time.thread_time()), running

    def finish(self) -> None:
        """Note that the last step, and what followed from it, has ended."""
        if self._began is not None:
            upper = next((end for end in BATCHES if self._running <= end), BATCHES[-1])
            passed = time.perf_counter() - self._began[0], time.thread_time() - self._began[1]
            self._classes[upper] = _sum(self._classes.get(upper), (1, *passed))
            self._began = None

    def take(self) -> Classes:
        """Return what was found, and forget it."""
        self.finish()
        found, self._classes = self._classes, {}
        return found


def watched(
    stopwatch: Stopwatch, running: Callable[[], int], poll: Callable[[], None] | None
) -> Callable[[], None]:
    """Return what an engine is to call between steps."""

    def call() -> None:
        if poll is not None:
            poll()
        stopwatch.step(running())

    return call


def together(classes: Sequence[Classes]) -> Classes:
    """Add up the steps and seconds of several candidates."""
    total: Classes = {}
    for one in classes:
        for upper, found in one.items():
            total[upper] = _sum(total.get(upper), found)
    return dict(sorted(total.items()))


def _sum(
    known: tuple[int, float, float] | None, more: tuple[int, float, float]
) -> tuple[int, float, float]:
    steps, seconds, busy = known or (0, 0.0, 0.0)
    return steps + more[0], seconds + more[1], busy + more[2]
