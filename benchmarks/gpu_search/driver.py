"""Giving candidates to engines: whoever is free takes the next one, nobody waits for others."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from benchmarks.gpu_search.messages import News, Turn
from benchmarks.gpu_search.outcome import Outcome
from benchmarks.gpu_search.processes import Child
from benchmarks.gpu_search.stopping import Place, floor_of


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
    began: float = field(default_factory=time.perf_counter)
    begun: int = 0
    scores: dict[int, float] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def floor(self) -> Place | None:
        return None if self.plan.experts is None else floor_of(self.scores, self.plan.experts)

    def next_turn(self) -> Turn | None:
        late = time.perf_counter() - self.began > self.plan.seconds
        if self.begun == self.plan.candidates or late:
            return None
        self.begun += 1
        return Turn(self.begun - 1, self.plan.experts is not None, self.floor)

    def take(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.score is not None:
            self.scores[outcome.candidate] = outcome.score


def search(engines: Sequence[Child], plan: Plan) -> tuple[list[Outcome], float]:
    """Evaluate candidates on some engines; return what came of each, and the seconds of it all."""
    run = _Search(plan)
    busy = {engine.connection: engine for engine in engines if _begin(engine, run)}
    while busy:
        for ready in wait(list(busy)):
            engine = busy.pop(ready)  # type: ignore[call-overload]  # what was given is returned
            known = run.floor
            run.take(_outcome(engine))
            if (floor := run.floor) is not None and floor != known:
                for other in busy.values():
                    other.tell(News(floor))
            if _begin(engine, run):
                busy[engine.connection] = engine
    return run.outcomes, time.perf_counter() - run.began


def _begin(engine: Child, run: _Search) -> bool:
    turn = run.next_turn()
    if turn is not None:
        engine.tell(turn)
    return turn is not None


def _outcome(engine: Child) -> Outcome:
    answer = engine.answer()
    if not isinstance(answer, Outcome):
        raise TypeError(f"{engine.name} answered {answer!r}")
    return answer
