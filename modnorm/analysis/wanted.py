"""Checks of a caller's request: what a run does not have is an error, not an empty list."""

from collections.abc import Mapping, Sequence

from modnorm.analysis.answers import BASE_INDEX, AnswerFilter
from modnorm.analysis.run_data import CandidateRow, EnsembleRow
from modnorm.arguments import require_index
from modnorm.errors import NotFoundError
from modnorm.spec import ExperimentSpec


def require_candidate(
    candidate: int | None, candidates: Sequence[CandidateRow], spec: ExperimentSpec
) -> None:
    """Refuse a candidate that a run does not have.

    Raises:
        InvalidInputError: it is no whole number.
        NotFoundError: it is none of the population, the base or a state of an iterative method.
    """
    if candidate is None:
        return
    require_index(candidate, "candidate", least=None)
    last = BASE_INDEX - (spec.iterative.updates if spec.iterative else 0)
    if not last <= candidate < len(candidates):
        states = f"; {BASE_INDEX - 1} to {last} are the states after updates"
        raise NotFoundError(
            f"the run has no candidate {candidate}",
            field="candidate",
            remedy=f"name one of 0 to {len(candidates) - 1}, or {BASE_INDEX} for the base"
            f"{states if spec.iterative else ''}",
        )


def require_answered_row(wanted: AnswerFilter, rows: Mapping[str, int]) -> None:
    """Refuse a split or a row that a run does not have.

    Args:
        wanted: The request.
        rows: Number of rows by split.

    Raises:
        NotFoundError: the run has no such split, or no row of this index.
    """
    known = {split: count for split, count in rows.items() if count}
    if wanted.split is not None and wanted.split not in known:
        raise NotFoundError(
            f"the run has no {wanted.split} rows",
            field="split",
            remedy=f"name one of {', '.join(known)}",
        )
    counts = {split: known[split] for split in known if wanted.split in {None, split}}
    if wanted.row is not None and wanted.row >= max(counts.values(), default=0):
        ends = ", ".join(f"0 to {count - 1} ({split})" for split, count in counts.items())
        raise NotFoundError(f"the run has no row {wanted.row}", field="row", remedy=f"name {ends}")


def require_voted_row(row: int | None, ensembles: Sequence[EnsembleRow]) -> None:
    """Refuse a held-out row that no ensemble voted on.

    Raises:
        NotFoundError: there is no such row.
    """
    rows = max((ensemble.rows for ensemble in ensembles), default=0)
    if row is not None and row >= rows:
        raise NotFoundError(
            f"no row {row} was voted on", field="row", remedy=f"name one of 0 to {rows - 1}"
        )
