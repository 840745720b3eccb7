"""Enumerations that are stored as text: states, splits, kinds of artifacts and failures."""

from enum import StrEnum


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
CONDUCTED = frozenset(
    {ExperimentState.PENDING, ExperimentState.CALIBRATING, ExperimentState.SAMPLING}
)
"""States that the conductor moves experiments out of; reports move them out of the others."""


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
    """Rows that a job answers."""

    SELECTION = "selection"
    HELDOUT = "heldout"
    DEVELOPMENT = "development"


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


BASE_INDEX = -1
"""Candidate index of the unperturbed model."""


def state_index(updates: int) -> int:
    """Return the candidate index of a state of an iterative run; the base is the first state."""
    return BASE_INDEX - updates
