"""The one-page report of a distillation: HTML beside the reports of its searches."""

import base64
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from modnorm.analysis.distillation import (
    Accuracy,
    DistillationDocument,
    RoundEntry,
    SearchEntry,
    best_entry,
    describe_gain,
    first_search,
    total_budget,
)
from modnorm.analysis.plots import BARS, BASE_COLOUR, RIGHT, WRONG, add_legend, drawn, name_axes
from modnorm.analysis.report import page_environment, settings_text

REPORT = "report.html"
"""Name of the report in the directory of a distillation."""
_CAPTION = "Held-out accuracy of each round's models with 95 % Wilson intervals, and of the base."
_APART = 0.06
"""Rounds between the intervals of two series."""


def render_distillation(document: DistillationDocument) -> str:
    """Return the report as HTML; its links lead to the files of the rounds beside it."""
    spec = document["spec"]
    return (
        page_environment()
        .get_template("distillation.html")
        .render(
            title=str(spec.get("name") or "distillation"),
            spec=spec,
            rounds=document["rounds"],
            first=first_search(document),
            best=best_entry(document),
            summary=describe_gain(document),
            spent=total_budget(document["rounds"]),
            plot=base64.b64encode(draw_rounds(document)).decode("ascii"),
            caption=_CAPTION,
            provenance=document["provenance"],
            settings=settings_text(spec),
        )
    )


def draw_rounds(document: DistillationDocument) -> bytes:
    """Return a PNG of the held-out accuracies of base, rank 1, vote and student by round."""
    return drawn(partial(_rounds, document=document))


def _rounds(axes: Axes, document: DistillationDocument) -> None:
    base = document["rounds"][0]["heldout"]["metric"]
    if base is not None:
        axes.axhline(100 * base, color=BASE_COLOUR, linewidth=1.2, linestyle="--", label="base")
    searches = _searches(document)
    series = {
        "rank 1": (WRONG, [(number, one["best_expert"]) for number, one in searches]),
        "vote": (BARS, [(number, one["vote"]) for number, one in searches]),
        "student": (RIGHT, [(one["round"], one["heldout"]) for one in document["rounds"][1:]]),
    }
    for place, (name, (colour, points)) in enumerate(series.items()):
        _line(axes, name, colour, [(number + _APART * (place - 1), one) for number, one in points])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    name_axes(axes, "Held-out accuracy by round", "round", "per cent")
    add_legend(axes)


def _line(axes: Axes, name: str, colour: str, points: list[tuple[float, Accuracy]]) -> None:
    known = [(x, one["metric"], one["interval"]) for x, one in points]
    places = [x for x, metric, _ in known if metric is not None]
    values = [100 * metric for _, metric, _ in known if metric is not None]
    axes.plot(places, values, "o-", color=colour, label=name)
    for x, _, interval in known:
        if interval is not None:
            axes.vlines(x, 100 * interval[0], 100 * interval[1], color=colour, linewidth=1.2)


def _searches(document: DistillationDocument) -> list[tuple[int, SearchEntry]]:
    """Return the searches with their rounds."""
    entries: list[RoundEntry] = document["rounds"]
    return [(each["round"], each["search"]) for each in entries if each["search"]]
