"""States of experiments and jobs, as they are stored."""

from enum import StrEnum


class ExperimentState(StrEnum):
    """Where an experiment is; the last three absorb."""

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
"""States that the conductor leads out of; reports lead out of the others."""


class JobState(StrEnum):
    """Where a job is."""

    PENDING = "pending"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = frozenset({JobState.PENDING, JobState.LEASED})
"""Jobs that still have to end."""


class Split(StrEnum):
    """Which rows a job answers."""

    SELECTION = "selection"
    HELDOUT = "heldout"
    DEVELOPMENT = "development"


class ArtifactKind(StrEnum):
    """What a stored artifact is."""

    ROWS = "rows"
    PROFILE = "profile"
    SCALE_MAP = "scale_map"
    GENERATOR = "generator"


BASE_INDEX = -1
"""Candidate index of the unperturbed model."""


def state_index(updates: int) -> int:
    """Return the candidate index of a state of an iterative run; the base is the first state."""
    return BASE_INDEX - updates
