"""Schedules of faults. A schedule is a function of its seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """A kind of fault."""

    KILL_EVALUATOR = "kill_evaluator"
    KILL_ENGINE = "kill_engine"
    KILL_AGGREGATOR = "kill_aggregator"
    KILL_CALIBRATOR = "kill_calibrator"
    KILL_SAMPLER = "kill_sampler"
    PAUSE_EVALUATOR = "pause_evaluator"
    PAUSE_AGGREGATOR = "pause_aggregator"
    FLUSH_BROKER = "flush_broker"
    RESTART_BROKER = "restart_broker"
    RESTART_DATABASE = "restart_database"
    CUT_LINK = "cut_link"
    CUT_HOST = "cut_host"
    JUMP_CLOCK = "jump_clock"
    FILL_DISK = "fill_disk"
    REPEAT_MESSAGES = "repeat_messages"
    REPEAT_REPORT = "repeat_report"
    LATE_REPORT = "late_report"
    UPDATE_AGGREGATOR = "update_aggregator"


SEARCH_FAULTS = tuple(Fault)
"""Faults of searches."""
_NOT_IN_PREDICTIONS = {Fault.KILL_CALIBRATOR, Fault.KILL_SAMPLER}
PREDICTION_FAULTS = tuple(fault for fault in Fault if fault not in _NOT_IN_PREDICTIONS)
"""Faults of predictions, which need neither calibrator nor sampler."""
EARLY = frozenset({Fault.KILL_CALIBRATOR, Fault.KILL_SAMPLER, Fault.FILL_DISK})
"""Faults that affect calibrator and sampler, injected right after the submission."""
COLD = EARLY
"""Faults before which profiles and scale maps are deleted, so that they are computed again."""
EXPERIMENTS = ("randopt", "modular_norm")
"""Experiments by name, in `verification.chaos.small_experiments`; the last one is calibrated."""
DRAFTS = "drafts"
"""Name of the search whose evaluators draft, in vLLM."""
PREDICTED = "predicted"
"""Name of the search whose ensemble answers questions."""
PREDICTIONS = ("prediction", "prediction of all experts")
"""Names of predictions; in the last one experts also answer questions that are settled."""


@dataclass(frozen=True)
class Step:
    """One fault.

    Attributes:
        fault: Its kind.
        after: Number of finished jobs before it; 0 for the submission.
        delay: Further delay in seconds.
        seed: Seed of its details, such as process and duration.
    """

    fault: Fault
    after: int
    delay: float
    seed: int

    def __str__(self) -> str:
        when = f"after {self.after} jobs" if self.after else "at the submission"
        return f"{self.fault} {when} + {self.delay:.2f} s"


@dataclass(frozen=True)
class Schedule:
    """The faults during one experiment."""

    seed: int
    experiment: str
    steps: tuple[Step, ...]

    @property
    def cold(self) -> bool:
        """Whether the calibrator and the sampler start with empty caches."""
        return any(step.fault in COLD for step in self.steps)

    def __str__(self) -> str:
        return f"{self.experiment}: {'; '.join(map(str, self.steps))}"


def draw(seed: int, jobs: int, faults: Sequence[Fault] = SEARCH_FAULTS) -> Schedule:
    """Draw a schedule of two to four faults in a search."""
    source = random.Random(seed)
    chosen = source.sample(faults, k=min(len(faults), source.randint(2, 4)))
    early = any(fault in EARLY for fault in chosen)
    experiment = EXPERIMENTS[-1] if early else source.choice(EXPERIMENTS)
    steps = (_step(fault, source, jobs) for fault in chosen)
    return Schedule(seed, experiment, tuple(sorted(steps, key=lambda step: step.after)))


def draw_drafts(seed: int, jobs: int) -> Schedule:
    """Draw a schedule of three faults in a search with drafts.

    Two evaluators are killed: each comes back late, without its drafts.
    """
    source = random.Random(seed)
    others = (Fault.KILL_AGGREGATOR, Fault.PAUSE_EVALUATOR, Fault.FLUSH_BROKER, Fault.CUT_LINK)
    chosen = (Fault.KILL_EVALUATOR, Fault.KILL_EVALUATOR, source.choice(others))
    steps = (_step(fault, source, jobs) for fault in chosen)
    return Schedule(seed, DRAFTS, tuple(sorted(steps, key=lambda step: step.after)))


def draw_prediction(seed: int, jobs: int) -> Schedule:
    """Draw a schedule of two to four faults in a prediction."""
    source = random.Random(seed)
    chosen = source.sample(PREDICTION_FAULTS, k=source.randint(2, 4))
    steps = (_step(fault, source, jobs) for fault in chosen)
    ordered = sorted(steps, key=lambda step: step.after)
    return Schedule(seed, source.choice(PREDICTIONS), tuple(ordered))


def _step(fault: Fault, source: random.Random, jobs: int) -> Step:
    after = source.randrange(3 * jobs // 4)
    if fault in EARLY and (fault is not Fault.FILL_DISK or source.random() < 0.5):
        after = 0
    return Step(fault, after, source.uniform(0.0, 0.8), source.getrandbits(32))
