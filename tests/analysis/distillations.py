"""A finished distillation, for tests."""

from modnorm.analysis.distillation import (
    SCHEMA,
    BudgetOfRound,
    DistillationDocument,
    RoundEntry,
    SearchEntry,
    accuracy_of,
)

ROWS = 100


def make_document(
    base: float, votes: list[float], students: list[float], *, name: str = "distilled"
) -> DistillationDocument:
    """Return a distillation with held-out accuracies; development rows are best in round 1."""
    rounds = [_round(0, base, None)]
    for number, (vote, student) in enumerate(zip(votes, students, strict=True), 1):
        search = SearchEntry(
            model="tiny" if number == 1 else f"student of round {number - 1}",
            base=accuracy_of(base, ROWS),
            best_expert=accuracy_of(vote - 0.05, ROWS),
            vote=accuracy_of(vote, ROWS),
            population=20,
            ensemble_size=10,
        )
        rounds.append(_round(number, student, search))
    return DistillationDocument(
        schema=SCHEMA,
        spec={
            "name": name,
            "model": {"name": "tiny"},
            "method": {"name": "randopt"},
            "task": {"name": "countdown"},
        },
        provenance={"model_digest": "d" * 64},
        best_round=1,
        rounds=rounds,
    )


def _round(number: int, heldout: float, search: SearchEntry | None) -> RoundEntry:
    trained = search is not None
    harvest = {
        "answers": 2000,
        "right": 900,
        "rows": 700,
        "examples": 800,
        "dataset_examples": 800 * number,
    }
    losses = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 0.25}]
    return RoundEntry(
        round=number,
        search=search,
        harvest=harvest if trained else None,
        dataset="e" * 64 if trained else None,
        student="f" * 64 if trained else None,
        development=accuracy_of(0.5 - 0.1 * number if trained else 0.2, ROWS),
        heldout=accuracy_of(heldout, ROWS),
        training={"steps": 2, "examples": 800 * number, "losses": losses} if trained else None,
        budget=BudgetOfRound(
            answers=2500,
            tokens=100_000,
            training_tokens=40_000 if trained else 0,
            training_flops=1e12 if trained else 0.0,
            training_seconds=12.0 if trained else 0.0,
        ),
    )
