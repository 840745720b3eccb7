"""The results of a distillation as one JSON document, beside the runs of its searches."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from modnorm.analysis.run import Run, read_document
from modnorm.analysis.run_files import DISTILLATION
from modnorm.analysis.uncertainty import ConfidenceInterval, accuracy_interval

SCHEMA: Literal["modnorm-distillation-1"] = "modnorm-distillation-1"


class Accuracy(TypedDict):
    """An accuracy on held-out or development rows."""

    metric: float | None
    interval: ConfidenceInterval | None
    """Wilson interval; None if the metric is not a fraction of the rows."""


class SearchEntry(TypedDict):
    """Held-out figures of the search of a round."""

    model: str
    """Model that was searched around: the base by name, or `student of round R`."""
    base: Accuracy
    """This model."""
    best_expert: Accuracy
    """The candidate at rank 1 by selection."""
    vote: Accuracy
    """The vote of the experts that answer training rows."""
    population: int
    ensemble_size: int


class BudgetOfRound(TypedDict):
    answers: int
    """Answers of its search, its harvest and its evaluation."""
    tokens: int
    """Tokens generated for them."""
    training_tokens: int
    training_flops: float
    training_seconds: float


class RoundEntry(TypedDict):
    """One round; round 0 is the base before any training."""

    round: int
    search: SearchEntry | None
    harvest: Mapping[str, int] | None
    """Answers to training rows, right ones, rows with examples, examples."""
    dataset: str | None
    """Digest of the dataset."""
    student: str | None
    """Digest of the student."""
    development: Accuracy
    """The model after the round on development rows, which choose the best round."""
    heldout: Accuracy
    """This model on held-out rows, which choose nothing."""
    training: Mapping[str, object] | None
    """Steps, examples, losses, environment."""
    budget: BudgetOfRound


class DistillationDocument(TypedDict):
    """Content of `distillation.json`."""

    schema: str
    spec: Mapping[str, object]
    provenance: Mapping[str, object]
    best_round: int | None
    """Round of the best student by development rows."""
    rounds: list[RoundEntry]


_CHECK = TypeAdapter(DistillationDocument)


def accuracy_of(metric: float | None, rows: int, correct: int | None = None) -> Accuracy:
    return Accuracy(metric=metric, interval=accuracy_interval(metric, rows, correct))


def search_entry(run: Run, model: str, size: int) -> SearchEntry:
    """Return the held-out figures of a round's search, at its largest N and K = `size`."""
    ensemble = max(
        (each for each in run.document["ensembles"] if each["ensemble_size"] == size),
        key=lambda each: each["population"],
    )
    best = ensemble["experts"][0]
    expert = next(each for each in run.document["experts"] if each["index"] == best)
    base, best_expert = (
        Accuracy(metric=each["heldout_metric"], interval=each["heldout_interval"])
        for each in (run.document["base"], expert)
    )
    return SearchEntry(
        model=model,
        base=base,
        best_expert=best_expert,
        vote=Accuracy(metric=ensemble["metric"], interval=ensemble["interval"]),
        population=ensemble["population"],
        ensemble_size=size,
    )


def is_distillation(directory: Path) -> bool:
    """Return whether a directory holds a finished distillation."""
    return (directory / DISTILLATION).is_file()


def round_directory(directory: Path, round_number: int) -> Path:
    return directory / "rounds" / str(round_number)


def load_distillation(directory: Path) -> DistillationDocument:
    return read_document(directory / DISTILLATION, SCHEMA, "distillation", _CHECK)


def best_entry(document: DistillationDocument) -> RoundEntry:
    """Return the round of the best student by development rows."""
    return next(each for each in document["rounds"] if each["round"] == document["best_round"])


def gain_kept(document: DistillationDocument) -> float | None:
    """Return the share of the first round's gain by the vote that the best student keeps.

    Gains are over the base, on held-out rows. None if the vote gained nothing.
    """
    base = document["rounds"][0]["heldout"]["metric"]
    vote = first_search(document)["vote"]["metric"]
    student = best_entry(document)["heldout"]["metric"]
    if base is None or vote is None or student is None or vote <= base:
        return None
    return (student - base) / (vote - base)


def describe_gain(document: DistillationDocument) -> str:
    """Return how much of the vote's gain the best student keeps, in one sentence."""
    best = f"The student of round {document['best_round']}"
    costs = f"costs one model instead of {first_search(document)['ensemble_size']}"
    kept = gain_kept(document)
    if kept is None:
        return f"{best} {costs}. The vote of round 1 gained nothing over the base."
    return f"{best} gains {100 * kept:.0f} % of what round 1's vote gains, and {costs}."


def first_search(document: DistillationDocument) -> SearchEntry:
    """Return the search of the first round, around the base."""
    return next(each["search"] for each in document["rounds"] if each["search"])


def total_budget(rounds: Sequence[RoundEntry]) -> BudgetOfRound:
    budgets = [each["budget"] for each in rounds]
    names = BudgetOfRound.__annotations__
    # `names` are the keys of the type.
    total = {name: sum(each[name] for each in budgets) for name in names}  # type: ignore[literal-required]
    return cast("BudgetOfRound", total)
