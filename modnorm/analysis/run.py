"""A finished run and its ensembles, for scripts and notebooks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.analysis.answers import SPLITS, AnswerFilter, AnswerRecord
from modnorm.analysis.listing import Listing
from modnorm.analysis.notebook_tables import html_table
from modnorm.analysis.run_data import BaseRow, CandidateRow, EnsembleRow
from modnorm.analysis.saved_run import SavedRun
from modnorm.analysis.uncertainty import ConfidenceInterval, accuracy_interval
from modnorm.analysis.votes import VoteFilter, VoteRecord
from modnorm.analysis.wanted import require_answered_row, require_candidate, require_voted_row
from modnorm.arguments import require_index, require_several, require_type
from modnorm.errors import NotFoundError
from modnorm.spec import ExperimentSpec

if TYPE_CHECKING:
    import pandas as pd

    from modnorm.prediction.predictor import PredictionSettings
    from modnorm.prediction.ranked_votes import Prediction


_COLUMNS = ("population", "ensemble_size", "metric", "lower", "upper", "correct", "rows")
"""Columns of the table of a run."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The vote of the K best of the first N candidates on the held-out rows."""

    population: int
    """N."""
    ensemble_size: int
    """K."""
    experts: tuple[int, ...]
    """Candidate indices, best first."""
    metric: float
    """Held-out metric of the vote, a fraction: the accuracy, or the task's own metric."""
    interval: ConfidenceInterval | None
    """95 % Wilson interval of the accuracy; None if the metric is not a fraction of rows."""
    correct: int
    """Rows with a correct vote."""
    rows: int
    """Rows voted on."""
    source: SavedRun = field(repr=False, compare=False)
    """The run that the votes are read from."""

    @property
    def votes(self) -> Listing[VoteRecord]:
        """The votes in row order."""
        return self._votes(None)

    def vote(self, row: int) -> VoteRecord:
        """Return the vote on one held-out row.

        Raises:
            InvalidInputError: the row is no whole number.
            NotFoundError: there is no such row.
        """
        require_index(row, "row")
        require_voted_row(row, self.source.ensembles)
        return next(iter(self._votes(row)))

    def predict(
        self,
        questions: Iterable[Mapping[str, object]],
        settings: "PredictionSettings | None" = None,
    ) -> tuple["Prediction", ...]:
        """Return the ensemble's answers to new questions, in order; needs the base model here.

        Args:
            questions: Rows with the task's columns; they need not state the right answers.
            settings: Base, engine and whether all experts answer; the defaults when None.

        Raises:
            InvalidInputError: a row breaks the task's schema, or this machine has no such base.
            ConflictError: the model of the base's name is another one.
            EvaluationError: an expert cannot answer, or the engine failed.
        """
        from modnorm.prediction.ensemble_definition import (  # noqa: PLC0415 - loads torch
            define_ensemble,
        )
        from modnorm.prediction.predictor import (  # noqa: PLC0415 - loads torch
            PredictionSettings,
            Predictor,
        )

        require_several(questions, "input", "rows")
        settings = PredictionSettings() if settings is None else settings
        require_type(settings, PredictionSettings, "settings")
        ensemble = define_ensemble(self.source, self.population, self.ensemble_size)
        predictor = Predictor(ensemble, settings)
        return tuple(predictor.predict(predictor.encode_rows(questions)))

    def to_pandas(self) -> "pd.DataFrame":
        """Return the votes as a table with one line for each row."""
        return self.votes.to_pandas()

    def _repr_html_(self) -> str:
        """Return the figures as HTML for a notebook."""
        names = [column.name for column in fields(self) if column.repr]
        return html_table(names, [[getattr(self, name) for name in names]])

    def _votes(self, row: int | None) -> Listing[VoteRecord]:
        wanted = VoteFilter(row, self.population, self.ensemble_size)
        return Listing(VoteRecord, lambda: self.source.votes(wanted))


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run; `load_run` reads a directory, `modnorm.Client.run` a lab."""

    name: str
    """Name of the directory, or id in the lab."""
    source: SavedRun = field(repr=False, compare=False)
    """The stored results, with scale map, descriptors and rows."""

    @property
    def spec(self) -> ExperimentSpec:
        """The experiment's spec."""
        return self.source.spec

    @property
    def base(self) -> BaseRow:
        """The unperturbed model."""
        return self.source.base

    @property
    def candidates(self) -> Listing[CandidateRow]:
        """The population in candidate order, without the base."""
        return Listing(CandidateRow, lambda: iter(self.source.candidates))

    @property
    def ensembles(self) -> tuple[Ensemble, ...]:
        """The ensembles, by N, then by K."""
        return tuple(_ensemble(row, self.source) for row in self.source.ensembles)

    def ensemble(self, population: int, ensemble_size: int) -> Ensemble:
        """Return the ensemble (N, K).

        Raises:
            InvalidInputError: N or K is no whole number.
            NotFoundError: the run does not report it.
        """
        require_index(population, "population", least=1)
        require_index(ensemble_size, "ensemble_size", least=1)
        sizes = {(row.population, row.ensemble_size): row for row in self.source.ensembles}
        if (population, ensemble_size) not in sizes:
            raise NotFoundError(
                f"the run has no ensemble N={population} K={ensemble_size}",
                field="ensemble_size",
                remedy="one of " + ", ".join(f"N={n} K={k}" for n, k in sizes),
            )
        return _ensemble(sizes[population, ensemble_size], self.source)

    def answers(
        self,
        candidate: int | None = None,
        split: str | None = None,
        row: int | None = None,
        *,
        wrong: bool = False,
    ) -> Listing[AnswerRecord]:
        """Return the matching answers by candidate, then split, then row.

        Args:
            candidate: Index in the population; -1 is the base. All when absent.
            split: `selection`, `heldout` or `development`. All when absent.
            row: Row of the split. All when absent.
            wrong: Whether to return wrong answers only.

        Raises:
            InvalidInputError: an argument has the wrong type, or there is no such split.
            NotFoundError: the run has no such candidate, split or row.
        """
        wanted = AnswerFilter(candidate, split, row, wrong)
        require_candidate(candidate, self.source.candidates, self.spec)
        if (split, row) != (None, None):
            lengths = {name: len(self.source.rows(name)) for name in SPLITS}
            require_answered_row(wanted, lengths)
        return Listing(AnswerRecord, lambda: self.source.answers(wanted))

    def votes(self, row: int | None = None) -> Listing[VoteRecord]:
        """Return the votes of all ensembles by N, then K, then row; or those on one row.

        Raises:
            InvalidInputError: the row is no whole number.
            NotFoundError: no such row was voted on.
        """
        wanted = VoteFilter(row)
        require_voted_row(row, self.source.ensembles)
        return Listing(VoteRecord, lambda: self.source.votes(wanted))

    def to_pandas(self) -> "pd.DataFrame":
        """Return a table with one line for each ensemble.

        Columns: `population`, `ensemble_size`, `metric`, `lower`, `upper`, `correct`, `rows`.
        `lower` and `upper` bound the 95 % Wilson interval; they are NaN if there is none.
        """
        table = Listing(Ensemble, lambda: iter(self.ensembles)).to_pandas()
        for place, bound in enumerate(("lower", "upper")):
            table[bound] = [interval and interval[place] for interval in table["interval"]]
        table = table.astype({"lower": float, "upper": float})
        return table[list(_COLUMNS)]

    def __str__(self) -> str:
        """Return the table of ensembles, with the base below it, as `print` shows it."""
        return f"{self.to_pandas().to_string(index=False)}\n{self._note()}"

    def _repr_html_(self) -> str:
        """Return the table of ensembles, with the base below it, as HTML for a notebook."""
        lines = self.to_pandas().to_numpy(dtype=object).tolist()
        return html_table(_COLUMNS, lines, self._note())

    def _note(self) -> str:
        base = self.base.heldout_metric
        known = "unknown" if base is None else f"{base:.4f}"
        return f"{self.name}: {self.spec.method.name}. Held-out metric of the base: {known}."


def load_run(directory: Path | str) -> Run:
    """Return the finished run in a directory.

    Raises:
        InvalidInputError: it is not the directory of one run.
        PreconditionError: the run has not finished.
    """
    saved = SavedRun(directory)
    _ = saved.document  # an unfinished run is refused here, not at the first use of its results
    return Run(saved.path.resolve().name, saved)


def _ensemble(row: EnsembleRow, source: SavedRun) -> Ensemble:
    return Ensemble(
        population=row.population,
        ensemble_size=row.ensemble_size,
        experts=row.experts,
        metric=row.metric,
        interval=accuracy_interval(row.metric, row.rows, row.correct),
        correct=row.correct,
        rows=row.rows,
        source=source,
    )
