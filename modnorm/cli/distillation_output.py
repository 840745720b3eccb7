"""The results of distillations, printed."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modnorm.cli.console import echo, echo_table, interval, percent

if TYPE_CHECKING:
    from modnorm.analysis.distillation import (
        Accuracy,
        ComparedEntry,
        DistillationDocument,
        RoundEntry,
    )


def print_distillation(document: "DistillationDocument") -> None:
    """Print a row for each model of each round, the gain that the student keeps, and the work."""
    from modnorm.analysis.distillation import describe_gain, total_budget

    headings = ("round", "model", "development", "held-out", "95 % Wilson")
    rows = [row for each in document["rounds"] for row in _rows(each, document)]
    echo_table(headings, rows)
    echo(f"* {describe_gain(document)}")
    spent = total_budget(document["rounds"])
    echo(
        f"{spent['answers']:,} answers, {spent['tokens']:,} tokens generated; "
        f"{spent['training_tokens']:,} tokens and {spent['training_flops']:.3g} operations in "
        f"{spent['training_seconds']:,.0f} s of training"
    )


def print_side_by_side(entries: "Sequence[ComparedEntry]") -> None:
    """Print held-out figures and work of each run; of distillations those of the best round."""
    headings = ("", *(entry["run"] for entry in entries))
    names = (
        "best round",
        "base",
        "rank 1 by selection",
        "vote",
        "student",
        "answers",
        "tokens",
        "training operations",
    )
    echo_table(headings, zip(names, *map(_column, entries), strict=True))


def _column(entry: "ComparedEntry") -> tuple[str, ...]:
    figures = (entry["base"], entry["best_expert"], entry["vote"], entry["student"])
    return (
        str(entry["best_round"] or ""),
        *(" ".join(_shown(one)).strip() if one else "" for one in figures),
        f"{entry['answers']:,}",
        f"{entry['tokens']:,}",
        f"{entry['training_flops']:.3g}",
    )


def _rows(entry: "RoundEntry", document: "DistillationDocument") -> Iterator[tuple[str, ...]]:
    number, search = str(entry["round"]), entry["search"]
    if search:
        yield number, "rank 1 by selection", "", *_shown(search["best_expert"])
        yield number, f"vote of {search['ensemble_size']}", "", *_shown(search["vote"])
    name = "student" if search else "base"
    mark = " *" if entry["round"] == document["best_round"] else ""
    development = percent(entry["development"]["metric"])
    yield number, f"{name}{mark}", development, *_shown(entry["heldout"])


def _shown(value: "Accuracy") -> tuple[str, str]:
    return percent(value["metric"]), interval(value["interval"])
