"""Distribution of candidates: each free engine takes the next candidate."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait

from benchmarks.gpu_search.candidate_outcome import CandidateOutcome
from benchmarks.gpu_search.child_processes import Child
from benchmarks.gpu_search.driver_messages import (
    PARKED_LIMIT,
    EvaluateCandidate,
    Free,
    ResumeParked,
    ThresholdUpdate,
)
from modnorm.search.stopping import Threshold, Thresholds


@dataclass(frozen=True)
class SearchPlan:
    """The candidates to evaluate, and the end of a search.

    Attributes:
        candidates: Number of candidates.
        experts: K, to stop candidates that cannot be among the K best; None to stop none.
        seconds: Seconds after which no candidate is begun.
    """

    candidates: int
    experts: int | None = None
    seconds: float = 3600.0


@dataclass(frozen=True)
class _Engine:
    """An engine and its last reported state."""

    process: Child
    parked: int = 0
    """Number of parked candidates."""
    threshold: Threshold | None = None


@dataclass
class _Search:
    """A search in progress."""

    plan: SearchPlan
    thresholds: Thresholds
    began: float = field(default_factory=time.perf_counter)
    begun: int = 0
    outcomes: list[CandidateOutcome] = field(default_factory=list)

    @property
    def threshold(self) -> Threshold | None:
        """The threshold of all candidates, equal since one population is reported."""
        return None if self.plan.experts is None else self.thresholds.of(0)

    def next_for(self, engine: _Engine) -> EvaluateCandidate | ResumeParked | None:
        """Return the next request for a free engine; its parked candidates may continue first."""
        late = time.perf_counter() - self.began > self.plan.seconds
        over = self.begun == self.plan.candidates or late
        if engine.parked and (over or engine.parked >= PARKED_LIMIT):
            return ResumeParked(self.threshold)
        if over:
            return None
        candidate = self.begun
        self.begun += 1
        return EvaluateCandidate(candidate, self.plan.experts is not None, self.threshold)

    def take(self, outcome: CandidateOutcome) -> None:
        """Add the outcome of a candidate."""
        self.outcomes.append(outcome)
        if outcome.score is not None:
            self.thresholds.add(outcome.candidate, outcome.score)


def search(processes: Sequence[Child], plan: SearchPlan) -> tuple[list[CandidateOutcome], float]:
    """Evaluate candidates on engines; return their outcomes and the total seconds."""
    run = _Search(plan, Thresholds([plan.candidates], plan.experts or plan.candidates))
    free, busy = [_Engine(one) for one in processes], dict[Connection, _Engine]()
    while True:
        for engine in free:
            if (message := run.next_for(engine)) is not None:
                engine.process.tell(message)
                busy[engine.process.connection] = replace(engine, threshold=message.threshold)
        if not busy:
            return run.outcomes, time.perf_counter() - run.began
        ready = [one for one in wait(list(busy)) if isinstance(one, Connection)]
        received = [_receive(one, busy, run) for one in ready]
        free = [engine for engine in received if engine is not None]
        _send_threshold(busy, run.threshold)


def _receive(
    connection: Connection, busy: dict[Connection, _Engine], run: _Search
) -> _Engine | None:
    """Receive the message of an engine; return the engine if it is free now."""
    engine = busy[connection]
    answer = engine.process.answer()
    if isinstance(answer, Free):
        del busy[connection]
        return replace(engine, parked=answer.parked)
    if not isinstance(answer, CandidateOutcome):
        raise TypeError(f"{engine.process.name} answered {answer!r}")
    run.take(answer)
    return None


def _send_threshold(busy: dict[Connection, _Engine], threshold: Threshold | None) -> None:
    """Send a raised threshold to the other engines."""
    for connection, engine in busy.items():
        if threshold != engine.threshold:
            engine.process.tell(ThresholdUpdate(threshold))
            busy[connection] = replace(engine, threshold=threshold)
