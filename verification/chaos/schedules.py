"""Schedules of faults, each a function of its seed, and the small experiments they disturb."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from modnorm.spec import ExperimentSpec, parse_spec


class Fault(StrEnum):
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


EARLY = frozenset({Fault.KILL_CALIBRATOR, Fault.KILL_SAMPLER, Fault.FILL_DISK})
"""Faults that affect calibrator and sampler, injected right after the submission. Profiles and
scale maps are deleted before them, so that they are computed again."""
EXPERIMENTS = ("randopt", "modular_norm")
"""Names of the searches; the last one is calibrated."""
JOBS = 11
"""Least number of jobs of a search: the base and eight candidates, then the base and an expert."""


@dataclass(frozen=True)
class Step:
    """One fault."""

    fault: Fault
    after: int
    """Number of finished jobs before it; 0 for the submission."""
    delay: float
    """Further delay in seconds."""
    seed: int
    """Seed of its details, such as process and duration."""

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
        return any(step.fault in EARLY for step in self.steps)

    def __str__(self) -> str:
        return f"{self.experiment}: {'; '.join(map(str, self.steps))}"


def draw(seed: int, faults: Sequence[Fault] = tuple(Fault)) -> Schedule:
    """Draw a schedule of two to four faults in a search."""
    source = random.Random(seed)
    chosen = source.sample(faults, k=min(len(faults), source.randint(2, 4)))
    early = any(fault in EARLY for fault in chosen)
    experiment = EXPERIMENTS[-1] if early else source.choice(EXPERIMENTS)
    steps = []
    for fault in chosen:
        after = source.randrange(3 * JOBS // 4)
        if fault in EARLY and (fault is not Fault.FILL_DISK or source.random() < 0.5):
            after = 0
        steps.append(Step(fault, after, source.uniform(0.0, 0.8), source.getrandbits(32)))
    return Schedule(seed, experiment, tuple(sorted(steps, key=lambda step: step.after)))


_POPULATION: Mapping[str, object] = {
    "size": 8,
    "prefixes": [4, 8],
    "ensemble_sizes": [1, 3],
    "seed": 11,
}
_TASK: Mapping[str, object] = {
    "name": "gsm8k",
    "selection": {"source": "bundled:word-problems-selection", "limit": 4},
    "heldout": {"source": "bundled:word-problems-heldout", "limit": 4},
    "max_tokens": 24,  # enough for an answer, unlike for one of Countdown
}
# The noise is so strong that scores differ and some votes are wrong.
_SECTIONS: Mapping[str, Mapping[str, object]] = {
    "randopt": {"task": _TASK, "method": {"name": "randopt", "sigma": 0.02}},
    "modular_norm": {
        "task": _TASK,
        "method": {"name": "modular_norm", "radius": 2.0},
        "calibration": {"examples": 2, "max_length": 32},
    },
}


def make_experiment(name: str) -> ExperimentSpec:
    """Return the spec of an experiment of the bundled model, which takes seconds and has votes."""
    return parse_spec(
        {
            "name": name,
            "model": "tiny-thicket",
            "population": dict(_POPULATION),
            "failures": {"max_attempts": 100},  # a schedule may end ten leases of one job
            "reuse": False,  # the searches of many schedules share a lab
            **_SECTIONS[name],
        }
    )
