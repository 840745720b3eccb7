"""Time of one candidate, by parts and by batch size."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

BATCHES = (4, 16, 64, 128, 256)
"""Upper bounds of the classes of batch sizes."""
Classes = dict[int, tuple[int, float, float]]
"""Steps, seconds and CPU seconds by upper bound of the class of batch sizes.

CPU seconds are those of the thread that takes the steps. It sleeps while it waits for the GPU
(vLLM's events block). If they equal the seconds, the GPU waits for the CPU.
"""


@dataclass(frozen=True)
class CandidateOutcome:
    """A scored or stopped candidate. All processes use the same clock."""

    candidate: int
    score: float | None
    """Mean reward; None if it was stopped."""
    began: float
    ended: float
    switch: float
    """Seconds to write the candidate's weights and to restore the base."""
    generate: float
    judge: float
    """Seconds of judging without concurrent generation."""
    classes: Classes = field(default_factory=dict)
    astray: int = 0
    """Number of answers with another length or text than drawn, which makes work incomparable."""

    @property
    def steps(self) -> int:
        """Decode steps."""
        return sum(steps for steps, _, _ in self.classes.values())


class Stopwatch:
    """Times decode steps by their number of sequences."""

    def __init__(self) -> None:
        self._classes: Classes = {}
        self._began: tuple[float, float] | None = None
        self._running = 0

    def step(self, running: int) -> None:
        """Record the start of a step with a number of sequences."""
        self.finish()
        self._began, self._running = (time.perf_counter(), time.thread_time()), running

    def finish(self) -> None:
        """Record the end of the last step and its follow-up."""
        if self._began is not None:
            upper = next((end for end in BATCHES if self._running <= end), BATCHES[-1])
            passed = time.perf_counter() - self._began[0], time.thread_time() - self._began[1]
            self._classes[upper] = _sum(self._classes.get(upper), (1, *passed))
            self._began = None

    def take(self) -> Classes:
        """Return the measurements and reset."""
        self.finish()
        classes, self._classes = self._classes, {}
        return classes


def watched(
    stopwatch: Stopwatch, running: Callable[[], int], poll: Callable[[], None] | None
) -> Callable[[], None]:
    """Return a callback for an engine to call between steps."""

    def call() -> None:
        if poll is not None:
            poll()
        stopwatch.step(running())

    return call


def together(classes: Sequence[Classes]) -> Classes:
    """Add up the steps and seconds of several candidates."""
    total: Classes = {}
    for one in classes:
        for upper, figures in one.items():
            total[upper] = _sum(total.get(upper), figures)
    return dict(sorted(total.items()))


def _sum(
    known: tuple[int, float, float] | None, more: tuple[int, float, float]
) -> tuple[int, float, float]:
    steps, seconds, busy = known or (0, 0.0, 0.0)
    return steps + more[0], seconds + more[1], busy + more[2]
