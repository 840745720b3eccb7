"""The votes of fewer experts than a run reports, counted from its stored answers.

The experts of (N, K) are the K best of the first N candidates, best first. So the first of them
are the experts of every smaller K, and their answers are in `answers.parquet`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import pandas as pd

from modnorm.analysis.document import EnsembleEntry, joint_shares
from modnorm.analysis.parquet_files import read_ballots
from modnorm.analysis.run import Run
from modnorm.analysis.run_data import VoteRow
from modnorm.analysis.statistics import vote_agreement
from modnorm.analysis.uncertainty import accuracy_interval
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.files import encode_json
from modnorm.search.budgets import Budget
from modnorm.search.voting import Ballot, count_votes
from modnorm.tasks import get_stored_task
from modnorm.tasks.task_errors import metric

_FIELD = "experts"


def add_ensembles(run: Run, sizes: Sequence[int]) -> Run:
    """Return a run that also reports the ensembles of further sizes, at each of its N.

    Args:
        run: The run.
        sizes: Numbers K of experts; those that the run reports change nothing.

    Raises:
        InvalidInputError: a size is below 1 or above the largest K of the run, the run trained
            one model, or it has no `answers.parquet` of this version.
        PreconditionError: an expert skipped rows.
    """
    entries = run.document["ensembles"]
    largest = {each["population"]: each for each in entries}  # sorted by N, then by K
    reported = {each["ensemble_size"] for each in entries}
    _check(run, sizes, max(reported, default=0))
    missing = sorted(set(sizes) - reported)
    if not missing:
        return run
    rows = entries[0]["rows"]
    ballots, _ = read_ballots(run.path, rows)
    added = {
        (population, size): _votes(run, [ballots[each] for each in whole["experts"][:size]])
        for population, whole in largest.items()
        for size in missing
    }
    made = [
        _entry(run, largest[population], size, votes)
        for (population, size), votes in added.items()
    ]
    every = sorted([*entries, *made], key=lambda each: (each["population"], each["ensemble_size"]))
    document = json.loads(encode_json({**run.document, "ensembles": every}))  # as if read
    return replace(run, document=document, added_votes=_lines(added))


def _check(run: Run, sizes: Sequence[int], largest: int) -> None:
    if run.document["iterative"]:
        raise InvalidInputError(
            f"{run.name} trained one model, so no experts vote",
            field=_FIELD,
            remedy="leave it out",
        )
    for size in sizes:
        if not 1 <= size <= largest:
            raise InvalidInputError(
                f"{run.name} has the answers of {largest} experts and no vote of {size}",
                field=_FIELD,
                remedy=f"name numbers from 1 to {largest}; more experts need a new search",
            )


def _votes(run: Run, ballots: Sequence[Ballot]) -> list[VoteRow]:
    votes = count_votes(ballots)
    skipped = sum(vote.skipped > 0 for vote in votes)
    if skipped:
        raise PreconditionError(
            f"of {run.name} the votes of {len(ballots)} experts are not known: some of them "
            f"skipped {skipped} of {len(votes)} rows",
            field=_FIELD,
            remedy="set population.statistics to full in the spec and run that again in the same "
            "directory or lab, which reuses complete results",
        )
    return [VoteRow(row=row, **asdict(vote)) for row, vote in enumerate(votes)]


def _entry(run: Run, largest: EnsembleEntry, size: int, votes: Sequence[VoteRow]) -> EnsembleEntry:
    right = [vote.correct for vote in votes]
    value = _metric(run, right)
    spent = Budget(largest["budget"]["search"], final=size * len(votes))
    experts = largest["experts"][:size]
    shares = {each["index"]: each["heldout_shares"] for each in run.document["experts"]}
    return EnsembleEntry(
        population=largest["population"],
        ensemble_size=size,
        experts=experts,
        metric=value,
        interval=accuracy_interval(value, len(votes), sum(right)),
        correct=sum(right),
        rows=len(votes),
        agreement=asdict(vote_agreement(votes, size)),
        shares=joint_shares([shares[each] for each in experts]),
        partial_votes=0,
        budget=spent.as_dict(),
    )


def _metric(run: Run, right: Sequence[bool]) -> float:
    """Return the task's metric; it may depend on the rows, as a balanced accuracy does."""
    named = run.spec.task
    task = get_stored_task(named.name, scorer=named.scorer, declaration=named.declaration)
    rows = [json.loads(row) for row in run.rows("heldout")]
    return metric(task, rows, right, InvalidInputError)


def _lines(added: Mapping[tuple[int, int], Sequence[VoteRow]]) -> pd.DataFrame:
    return pd.DataFrame(
        {"population": population, "ensemble_size": size, **asdict(vote)}
        for (population, size), votes in added.items()
        for vote in votes
    )
