"""The interface of experiment trackers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class RunStatus(StrEnum):
    """How a tracked run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Cancelled or interrupted; an interrupted run may continue."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run as a tracker names it."""

    id: str
    """Id of the experiment; a resumed experiment continues the tracker's run of this id."""
    name: str
    parameters: Mapping[str, str | int | float | bool]
    """The spec by dotted path."""


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of a phase at one time."""

    phase: str
    step: int
    """Finished jobs, updates or examples of the phase."""
    seconds: float
    """Time since the epoch."""
    values: Mapping[str, float]
    """Figures by name, `done` among them; each is logged as `PHASE/NAME`."""


class Tracker(Protocol):
    """One run in an experiment tracker. Methods raise whatever the tracker's library raises."""

    def start(self, run: TrackedRun) -> None:
        """Start the run, or continue the one of this id, and log its parameters."""

    def log(self, point: Point) -> None:
        """Log figures of a phase."""

    def summarize(self, values: Mapping[str, float]) -> None:
        """Log the final figures by name."""

    def attach(self, files: Mapping[str, Path]) -> None:
        """Store files by their path inside the run directory."""

    def end(self, outcome: RunStatus) -> None:
        """End the run, and wait until the tracker has all of it."""
