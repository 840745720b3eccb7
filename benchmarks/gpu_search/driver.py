"""Giving candidates to engines: whoever is free takes the next one, nobody waits for others."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait

from benchmarks.gpu_search.messages import RESTING, Free, GoOn, News, Turn
from benchmarks.gpu_search.outcome import Outcome
from benchmarks.gpu_search.processes import Child
from modnorm.search.stopping import Threshold, Thresholds


@dataclass(frozen=True)
class Plan:
    """Which candidates are evaluated, and when that ends.

    Attributes:
        candidates: The first so many.
        experts: K, where those that cannot be among the K best are stopped; None where none is.
        seconds: No candidate is begun after so many.
        rests: Whether candidates are parked, for others to begin (`modnorm.search.scheduling`).
    """

    candidates: int
    experts: int | None = None
    seconds: float = 3600.0
    rests: bool = False


@dataclass(frozen=True)
class _Engine:
    """An engine, and what it was last said to have."""

    process: Child
    resting: int = 0
    """Candidates that rest in it."""
    bar: Threshold | None = None


@dataclass
class _Search:
    """One search that is under way."""

    plan: Plan
    bars: Thresholds
    began: float = field(default_factory=time.perf_counter)
    begun: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def bar(self) -> Threshold | None:
        """What candidates have to pass: the same for all, as one population is reported."""
        return None if self.plan.experts is None else self.bars.of(0)

    def next_for(self, engine: _Engine) -> Turn | GoOn | None:
        """Return what a free engine does next: a candidate of its own goes on when it must."""
        late = time.perf_counter() - self.began > self.plan.seconds
        over = self.begun == self.plan.candidates or late
        if engine.resting and (over or engine.resting >= RESTING):
            return GoOn(self.bar)
        if over:
            return None
        candidate = self.begun
        self.begun += 1
        return Turn(candidate, self.plan.experts is not None, self.bar, self.plan.rests)

    def take(self, outcome: Outcome) -> None:
        """Take in what came of a candidate."""
        self.outcomes.append(outcome)
        if outcome.score is not None:
            self.bars.add(outcome.candidate, outcome.score)


def search(processes: Sequence[Child], plan: Plan) -> tuple[list[Outcome], float]:
    """Evaluate candidates on some engines; return what came of each, and the seconds of it all."""
    run = _Search(plan, Thresholds([plan.candidates], plan.experts or plan.candidates))
    free, busy = [_Engine(one) for one in processes], dict[Connection, _Engine]()
    while True:
        for engine in free:
            if (message := run.next_for(engine)) is not None:
                engine.process.tell(message)
                busy[engine.process.connection] = replace(engine, bar=message.bar)
        if not busy:
            return run.outcomes, time.perf_counter() - run.began
        ready = [one for one in wait(list(busy)) if isinstance(one, Connection)]
        heard = [_heard(one, busy, run) for one in ready]
        free = [engine for engine in heard if engine is not None]
        _spread(busy, run.bar)


def _heard(
    connection: Connection, busy: dict[Connection, _Engine], run: _Search
) -> _Engine | None:
    """Hear an engine out; return it if it is free now."""
    engine = busy[connection]
    answer = engine.process.answer()
    if isinstance(answer, Free):
        del busy[connection]
        return replace(engine, resting=answer.resting)
    if not isinstance(answer, Outcome):
        raise TypeError(f"{engine.process.name} answered {answer!r}")
    run.take(answer)
    return None


def _spread(busy: dict[Connection, _Engine], bar: Threshold | None) -> None:
    """Tell the others of a bar that has risen."""
    for connection, engine in busy.items():
        if bar != engine.bar:
            engine.process.tell(News(bar))
            busy[connection] = replace(engine, bar=bar)
