"""Enumerations stored as text: states, splits, kinds of artifacts and failures."""

from enum import StrEnum

from modnorm.analysis.answers import BASE_INDEX


class ExperimentState(StrEnum):
    """State of an experiment; the last three are final."""

    PENDING = "PENDING"
    CALIBRATING = "CALIBRATING"
    SAMPLING = "SAMPLING"
    SELECTING = "SELECTING"
    VOTING = "VOTING"
    DISTILLING = "DISTILLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


TERMINAL = frozenset(
    {ExperimentState.SUCCEEDED, ExperimentState.FAILED, ExperimentState.CANCELLED}
)
IN_SETUP = frozenset(
    {ExperimentState.PENDING, ExperimentState.CALIBRATING, ExperimentState.SAMPLING}
)
"""States before the selection, which the conductor ends. Reports end the other states."""
DRIVEN = IN_SETUP | {ExperimentState.DISTILLING}
"""States of the experiments that the conductor drives."""


class JobState(StrEnum):
    """State of a job."""

    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = frozenset({JobState.PENDING, JobState.LEASED})
"""States of jobs that have not ended."""


class Split(StrEnum):
    """The set of rows that a job answers."""

    SELECTION = "selection"
    HELDOUT = "heldout"
    DEVELOPMENT = "development"
    QUESTIONS = "questions"
    """The questions of a prediction."""
    HARVEST = "harvest"
    """The training rows of a distillation, which experts answer."""
    TRAINING = "training"
    """No rows: the job trains a student on a dataset."""


class FailureKind(StrEnum):
    """Cause of a failed attempt, as in `modnorm.v1.FailureKind`."""

    INFRASTRUCTURE = "infrastructure"
    CANDIDATE = "candidate"
    FATAL = "fatal"
    RELEASED = "released"


class ArtifactKind(StrEnum):
    """Content of a stored artifact."""

    ROWS = "rows"
    PROFILE = "profile"
    SCALE_MAP = "scale_map"
    GENERATOR = "generator"
    DATASET = "dataset"


class Purpose(StrEnum):
    """What an experiment is for."""

    SEARCH = "search"
    """All that users submit, and the searches of a distillation."""
    HARVEST = "harvest"
    """Experts of a search answer the training rows of a distillation."""
    EVALUATION = "evaluation"
    """One model of a distillation answers development and held-out rows."""


class RoundPhase(StrEnum):
    """Phase of a round of a distillation, as in `modnorm.v1.RoundPhase`."""

    SEARCHING = "SEARCHING"
    HARVESTING = "HARVESTING"
    TRAINING = "TRAINING"
    EVALUATING = "EVALUATING"
    DONE = "DONE"


def state_index(updates: int) -> int:
    """Return the candidate index of an iterative run's state, whose first state is the base."""
    return BASE_INDEX - updates
