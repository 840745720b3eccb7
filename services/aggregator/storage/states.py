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
    """Questions without right answers."""


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


def state_index(updates: int) -> int:
    """Return the candidate index of an iterative run's state, whose first state is the base."""
    return BASE_INDEX - updates
