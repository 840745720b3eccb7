"""Giving candidates to engines: whoever is free takes the next one, nobody waits for others."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait

from benchmarks.gpu_search.messages import News, Turn
from benchmarks.gpu_search.outcome import Outcome
from benchmarks.gpu_search.processes import Child
from modnorm.search.stopping import Bar, Bars


@dataclass(frozen=True)
class Plan:
    """Which candidates are evaluated, and when that ends.

    Attributes:
        candidates: The first so many.
        experts: K, where those that cannot be among the K best are stopped; None where none is.
        seconds: No candidate is begun after so many.
    """

    candidates: int
    experts: int | None = None
    seconds: float = 3600.0


@dataclass
class _Search:
    """One search that is under way."""

    plan: Plan
    bars: Bars
    began: float = field(default_factory=time.perf_counter)
    begun: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    def bar(self, candidate: int) -> Bar | None:
        return None if self.plan.experts is None else self.bars.of(candidate)

    def next_turn(self) -> Turn | None:
        late = time.perf_counter() - self.began > self.plan.seconds
        if self.begun == self.plan.candidates or late:
            return None
        candidate = self.begun
        self.begun += 1
        return Turn(candidate, self.plan.experts is not None, self.bar(candidate))

    def take(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.score is not None:
            self.bars.complete(outcome.candidate, outcome.score)


def search(engines: Sequence[Child], plan: Plan) -> tuple[list[Outcome], float]:
    """Evaluate candidates on some engines; return what came of each, and the seconds of it all."""
    run = _Search(plan, Bars([plan.candidates], plan.experts or plan.candidates))
    free, busy = list(engines), dict[Connection, tuple[Child, Turn]]()
    while True:
        for engine in free:
            if (turn := run.next_turn()) is not None:
                engine.tell(turn)
                busy[engine.connection] = engine, turn
        if not busy:
            return run.outcomes, time.perf_counter() - run.began
        ready = wait(list(busy))
        free = [_take(*busy.pop(one), run) for one in list(busy) if one in ready]
        _spread(busy, run)


def _take(engine: Child, _: Turn, run: _Search) -> Child:
    run.take(_outcome(engine))
    return engine


def _spread(busy: "dict[Connection, tuple[Child, Turn]]", run: _Search) -> None:
    """Tell the others of a bar that has risen."""
    for connection, (engine, turn) in busy.items():
        bar = run.bar(turn.candidate)
        if bar != turn.bar:
            engine.tell(News(bar))
            busy[connection] = engine, replace(turn, bar=bar)


def _outcome(engine: Child) -> Outcome:
    answer = engine.answer()
    if not isinstance(answer, Outcome):
        raise TypeError(f"{engine.name} answered {answer!r}")
    return answer
