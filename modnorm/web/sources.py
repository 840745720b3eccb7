"""The interface between pages and stored runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from modnorm.analysis.comparison import ComparisonRow
from modnorm.analysis.distillation import DistillationDocument
from modnorm.analysis.run import Run
from modnorm.analysis.uncertainty import ConfidenceInterval
from modnorm.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class Headline:
    """The figures of a finished run in the list; None where not measured."""

    base: float | None
    """Held-out metric of the base."""
    base_interval: ConfidenceInterval | None
    """95 % Wilson interval of the base's metric."""
    vote: float | None
    """Held-out metric of the vote of the largest N and K."""
    interval: ConfidenceInterval | None
    """95 % Wilson interval of the vote's metric."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run in its present phase."""

    unit: str
    """Unit of the counts: `jobs`, `prompts` or `updates`."""
    done: int
    total: int
    """0 where the phase counts nothing."""
    failed: int
    best_reward: float | None
    """Best selection reward so far."""
    threshold_reward: float | None
    """Reward that a candidate must exceed to be an expert of the largest K."""
    remaining: float | None
    """Seconds until the phase ends, at its rate so far; None while unknown."""
    waits_for: str
    """Why the next step waits; empty if it does not wait."""
    message: str
    """The last event."""
    workers: Mapping[str, int]
    """Jobs of the run that each worker has in work, by its name."""


@dataclass(frozen=True, slots=True)
class Status:
    """How far a run is."""

    state: str
    """State in words, such as `selecting` or `finished`."""
    finished: bool = False
    """Whether it has results of a search."""
    live: bool = True
    """Whether its state may still change."""
    error: str = ""
    """Why it does not go on, and the remedy; empty if it does."""
    progress: Progress | None = None
    """None if unknown, or where it is not live."""


FINISHED = Status("finished", finished=True, live=False)


@dataclass(frozen=True)
class ViewedRun:
    """A run on a page, finished or not."""

    name: str
    """Name in addresses: unique in its catalog."""
    spec: Mapping[str, object]
    """The spec as JSON values."""
    status: Status
    read: Callable[[], Run]
    """Returns the results of a finished search."""
    headline: Headline | None = None
    """Its figures in the list; None unless it has finished."""
    distillation: DistillationDocument | None = None
    """The document of a finished distillation; None for a search."""

    @cached_property
    def results(self) -> Run:
        """The results of a finished search."""
        return self.read()


class Catalog(Protocol):
    """The runs that a page shows."""

    def runs(self, page: int) -> tuple[Sequence[ViewedRun], bool]:
        """Return one page of the list, from 1, and whether there is a next page."""

    def run(self, name: str) -> ViewedRun:
        """Return a run."""

    def compare(self, names: Sequence[str]) -> Sequence[ComparisonRow]:
        """Set finished runs side by side; see `modnorm.analysis.comparison.compare_runs`."""


def unknown_run(name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no run {name[:80]!r}", field="run", remedy="choose a run of the list"
    )
