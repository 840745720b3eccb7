"""The larger run that copies of one seed give together, without another evaluation.

The candidates of a seed are the same in every population size, and the first experts of an
ensemble are a smaller one. Take a copy of N = 100, and one of N = 300 whose only ensemble has 25
experts. Together they give the (N, K) of both, and K = 1, 5 and 10 of N = 300.
"""

import shutil
from collections.abc import Collection, Sequence
from operator import itemgetter
from pathlib import Path
from typing import cast

import pandas as pd

from modnorm.analysis.document import AnswerShares, EnsembleEntry, ResultsDocument
from modnorm.analysis.parquet_files import read_ballots
from modnorm.analysis.run_files import RESULTS
from modnorm.analysis.statistics import vote_agreement
from modnorm.analysis.uncertainty import accuracy_interval
from modnorm.files import encode_json
from modnorm.search.budgets import ensemble_budget
from modnorm.search.voting import RowVote, count_votes
from modnorm.suites.outcomes import candidate_count
from scripts.run_copies import RunCopy, count_ensemble, write_kept_answers


def join_copies(
    copies: Sequence[RunCopy], places: Collection[tuple[int, int]], directory: Path
) -> RunCopy:
    """Return a run with all (N, K) among some places that copies of one seed have.

    The copies differ in sizes only. The run is the first copy if that has all. Else it is new, in
    a directory, with the candidates and the times of the largest copy. Where several copies have
    an (N, K), that of the largest counts. Answers of a candidate in several copies may differ by
    rounding: votes are of the copy of their (N, K), `answers.parquet` has those of the largest.
    """
    scales = "scale_map_digest"  # candidates of other scales are others
    alike = [one for one in copies if one.provenance[scales] == copies[0].provenance[scales]]
    alike.sort(key=candidate_count, reverse=True)
    found = {place: source for place in sorted(places) if (source := _source(place, alike))}
    own = {each.place for each in copies[0].ensembles}
    if found.keys() <= own:
        return copies[0]
    shutil.copytree(alike[0].path, directory)
    write_kept_answers(directory, _joined_answers(alike))
    entries, counts = list[EnsembleEntry](), list[pd.DataFrame]()
    for (population, size), (copy, whole) in found.items():
        experts = whole["experts"][:size]
        ballots, _ = read_ballots(copy.path, whole["rows"])
        votes = count_votes([ballots[expert] for expert in experts])
        is_whole = size == whole["ensemble_size"]
        entries.append(whole if is_whole else _first_experts(copy, whole, experts, votes))
        counts.append(count_ensemble((population, size), votes))
    document = cast("ResultsDocument", {**alike[0].document, "ensembles": entries})
    (directory / RESULTS).write_bytes(encode_json(document))
    return RunCopy(directory, document, directory.name, pd.concat(counts, ignore_index=True))


def _source(
    place: tuple[int, int], copies: Sequence[RunCopy]
) -> tuple[RunCopy, EnsembleEntry] | None:
    """Return the smallest ensemble whose first experts are (N, K), of the first copy with one."""
    population, size = place
    for copy in copies:
        for entry in sorted(copy.document["ensembles"], key=itemgetter("ensemble_size")):
            if entry["population"] != population or entry["ensemble_size"] < size:
                continue
            # Of other metrics, and where experts left out rows, the vote of some is unknown.
            is_accuracy, experts = entry["interval"] is not None, {*entry["experts"]}
            is_divisible = is_accuracy and experts <= copy.full_voters
            if entry["ensemble_size"] == size or is_divisible:
                return copy, entry
    return None


def _first_experts(
    copy: RunCopy, whole: EnsembleEntry, experts: Sequence[int], votes: Sequence[RowVote]
) -> EnsembleEntry:
    size, rows, correct = len(experts), len(votes), sum(vote.correct for vote in votes)
    answers = copy.answers_frame(["candidate", "split", "vote", "truncated"])
    given = answers[(answers["split"] == "heldout") & answers["candidate"].isin(experts)]
    selection_rows = whole["budget"]["search"] // whole["population"]
    budget = ensemble_budget(whole["population"], size, rows, selection_rows=selection_rows)
    return EnsembleEntry(
        population=whole["population"],
        ensemble_size=size,
        experts=list(experts),
        metric=correct / rows,
        interval=accuracy_interval(correct / rows, rows, correct),
        correct=correct,
        rows=rows,
        agreement=vote_agreement(votes, size),
        shares=AnswerShares(
            answers=len(given),
            valid=float(given["vote"].notna().mean()),
            truncated=float(given["truncated"].mean()),
        ),
        budget=budget.as_dict(),
    )


def _joined_answers(copies: Sequence[RunCopy]) -> pd.DataFrame:
    """Return the answers of the first copy, and held-out answers of models that lack them."""
    parts, voters = [copies[0].answers_frame()], {*copies[0].full_voters}
    for copy in copies[1:]:
        answers = copy.answers_frame()
        is_new = answers["candidate"].isin(copy.full_voters - voters)
        parts.append(answers[is_new & answers["split"].eq("heldout")])
        voters |= copy.full_voters
    joined = pd.concat(parts)
    return joined.drop_duplicates(["candidate", "split", "row"], keep="last")
