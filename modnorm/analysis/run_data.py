"""A finished run as plain data, independent of services, engines and wire formats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from typing_extensions import TypedDict

from modnorm.errors import NotFoundError
from modnorm.search.ranking import rank
from modnorm.search.voting import RowVote

if TYPE_CHECKING:
    from modnorm.analysis.uncertainty import ConfidenceInterval


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One candidate, or the base, with its outcome; `CandidateRecord` explains most fields."""

    index: int
    seed: int
    state: str
    selection_reward: float | None = None
    heldout_metric: float | None = None
    selection_tokens: int = 0
    selection_answers: int = 0
    selection_correct: int = 0
    selection_valid: int = 0
    selection_truncated: int = 0
    heldout_answers: int = 0
    heldout_valid: int = 0
    heldout_truncated: int = 0
    attempts: int = 1
    worker: str = ""
    seconds: float = 0.0
    """Time that scoring took."""
    reused: bool = False
    """Whether its score is that of an earlier run."""
    heldout_attempts: int = 0
    heldout_worker: str = ""
    heldout_seconds: float = 0.0
    """Time that answering the held-out rows took."""
    heldout_reused: bool = False
    """Whether its held-out answers are those of an earlier run."""
    error: str = ""
    """Why it failed."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Device and libraries of its selection answers, on which rounding may depend; empty without
    answers."""
    heldout_environment: Mapping[str, str] = field(default_factory=dict)
    """The environment of its held-out answers."""


@dataclass(frozen=True, slots=True)
class BaseRow:
    """Figures of the unperturbed model; None if a figure was not measured."""

    selection_reward: float | None = None
    heldout_metric: float | None = None


@dataclass(frozen=True, slots=True)
class EnsembleRow:
    """The vote of the K best of the first N candidates."""

    population: int
    ensemble_size: int
    experts: tuple[int, ...]
    """Candidate indices, best first."""
    metric: float
    """Held-out metric of the vote, a fraction: the accuracy, or the task's own metric."""
    correct: int
    """Rows with a correct vote."""
    rows: int
    """Rows voted on."""

    @property
    def place(self) -> tuple[int, int]:
        """N and K."""
        return self.population, self.ensemble_size

    @property
    def interval(self) -> "ConfidenceInterval | None":
        """95 % Wilson interval of the accuracy; None if the metric is not a fraction of rows."""
        from modnorm.analysis.uncertainty import accuracy_interval  # noqa: PLC0415 - loads scipy

        return accuracy_interval(self.metric, self.rows, self.correct)


class ReportedEnsemble(Protocol):
    @property
    def population(self) -> int:
        """N."""

    @property
    def ensemble_size(self) -> int:
        """K."""


EnsembleT = TypeVar("EnsembleT", bound=ReportedEnsemble)


def select_ensemble(
    ensembles: Sequence[EnsembleT], population: int | None, size: int | None
) -> EnsembleT:
    """Return the ensemble of a run with this N and K; None stands for the largest."""
    if not ensembles:
        raise NotFoundError("the run has no ensembles", field="n")
    wanted = [
        each
        for each in ensembles
        if population in {None, each.population} and size in {None, each.ensemble_size}
    ]
    if not wanted:
        names = (f"N={each.population} K={each.ensemble_size}" for each in ensembles)
        raise NotFoundError(
            "the run has no ensemble "
            + " ".join(
                f"{name}={value}"
                for name, value in (("N", population), ("K", size))
                if value is not None
            ),
            field="k" if size is not None else "n",
            remedy="one of " + ", ".join(names),
        )
    return max(wanted, key=lambda each: (each.population, each.ensemble_size))


@dataclass(frozen=True, slots=True)
class StateRow:
    """A state of an iterative run that was evaluated."""

    updates: int
    """Updates that lead to it."""
    lineage: str
    """Digest of its lineage."""
    reported: bool
    """Whether the held-out figures of the run are those of this state."""
    mean_reward: float | None = None
    """Mean selection reward of the candidates around it; None after the last update."""
    development_metric: float | None = None
    development_reward: float | None = None
    heldout_metric: float | None = None
    development_answers: int = 0
    development_tokens: int = 0
    development_attempts: int = 0
    heldout_answers: int = 0
    heldout_tokens: int = 0
    heldout_attempts: int = 0
    heldout_valid: int = 0
    heldout_truncated: int = 0


class RowsRecord(TypedDict):
    """The source and the digest of the rows that a run used."""

    source: str
    """As the spec names it."""
    config: str | None
    split: str | None
    revision: str | None
    """Commit of the Hugging Face dataset; None for other sources."""
    offset: int
    rows: int
    digest: str
    """Digest of the rows in the task's schema."""


@dataclass(frozen=True)
class RunData:
    """A finished run.

    Most fields depend on the experiment alone. These may differ between two runs of it:
    `attempts`, `worker`, `seconds`, `error`, the environments and `timings`.
    """

    spec: Mapping[str, object]
    """The experiment's spec as JSON values, defaults filled in."""
    provenance: Mapping[str, object]
    """Digests and names of all inputs of the results."""
    data: Mapping[str, RowsRecord]
    """The rows: `selection` and `heldout`."""
    candidates: Sequence[CandidateRow]
    """The whole population in candidate order, without the base."""
    base: CandidateRow
    """The unperturbed model, with an index of its own."""
    ensembles: Sequence[EnsembleRow]
    votes: Mapping[tuple[int, int], Sequence[RowVote]]
    """Votes of each (N, K), in row order."""
    overlap: int = 0
    """Held-out rows that have the prompt of a selection row."""
    states: Sequence[StateRow] = ()
    """Evaluated states of an iterative run, in order. Its one ensemble has one expert, a state."""
    timings: Mapping[str, object] = field(default_factory=dict)
    """Times, ids and machine names, as JSON values."""

    def __post_init__(self) -> None:
        if [candidate.index for candidate in self.candidates] != list(range(len(self.candidates))):
            raise ValueError("candidates must be numbered 0, 1, 2, ... in order")

    @property
    def rewards(self) -> list[float | None]:
        """Selection reward of each candidate, in candidate order; None if it failed."""
        return [candidate.selection_reward for candidate in self.candidates]

    @property
    def order(self) -> tuple[int, ...]:
        """Scored candidates of the whole population, best first."""
        return rank(self.rewards, len(self.candidates))

    @property
    def prefixes(self) -> tuple[int, ...]:
        """Population sizes that ensembles are reported for, ascending."""
        return tuple(sorted({ensemble.population for ensemble in self.ensembles}))
