"""The one-page reports of a run and of a distillation: HTML that needs no server."""

import base64
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from modnorm.analysis.distillation import (
    DistillationDocument,
    best_entry,
    describe_gain,
    first_search,
    total_budget,
)
from modnorm.analysis.document import EnsembleEntry, ResultsDocument, remarks
from modnorm.analysis.plots import (
    BARS,
    BASE_COLOUR,
    RIGHT,
    WRONG,
    add_legend,
    draw_panels,
    name_axes,
)

BEST_SHOWN = 10
_CAPTION = "Held-out accuracy of each round's models with 95 % Wilson intervals, and of the base."
_APART = 0.06
"""Rounds between the intervals of two series."""

PLOT_CAPTIONS = {
    "accuracy-by-ensemble-size": "Accuracy of the vote, 95 % Wilson intervals; dashed: the base.",
    "accuracy-by-population": "The same accuracies against the nested population sizes.",
    "reward-histogram": "Selection rewards of all candidates; the base is the dashed line.",
    "vote-support": "Held-out rows by the number of experts that are right.",
}


def render_report(document: ResultsDocument, plots: Mapping[str, bytes]) -> str:
    return (
        page_environment()
        .get_template("report.html")
        .render(
            **report_parts(document),
            plots=[
                {"name": name, "caption": caption, "data": base64.b64encode(plots[name]).decode()}
                for name, caption in PLOT_CAPTIONS.items()
                if name in plots
            ],
        )
    )


def page_environment(*folders: Path) -> Environment:
    """Return the templates of some folders and of the report; they escape values."""
    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": lambda value: "\u2013" if value is None else f"{100 * value:.1f} %",
        "interval": lambda bounds: (  # after a space; empty if there is none
            "" if bounds is None else f" [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"
        ),
        "reward": lambda value: "\u2013" if value is None else f"{value:.4f}",
    }
    return environment


def report_parts(document: ResultsDocument) -> dict[str, object]:
    """Return the values that the templates in `parts` show, by their names there."""
    table: dict[int, dict[int, EnsembleEntry]] = {}  # by N, then K, both ascending
    for ensemble in document["ensembles"]:
        table.setdefault(ensemble["population"], {})[ensemble["ensemble_size"]] = ensemble
    return {
        "document": document,
        "title": document["spec"]["name"] or "modnorm run",
        "sizes": sorted({each["ensemble_size"] for each in document["ensembles"]}),
        "table": table,
        "best": document["experts"][:BEST_SHOWN],
        "settings": settings_text(document["spec"]),
        **remarks(document),
    }


def settings_text(spec: Mapping[str, object]) -> str:
    """Return a spec as YAML."""
    plain = json.loads(json.dumps(spec))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


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
            plot=base64.b64encode(draw_panels([partial(_draw_rounds, document)])).decode(),
            caption=_CAPTION,
            provenance=document["provenance"],
            settings=settings_text(spec),
        )
    )


def _draw_rounds(document: DistillationDocument, axes: Axes) -> None:
    """Draw the held-out accuracies of base, rank 1, vote and student by round."""
    base = document["rounds"][0]["heldout"]["metric"]
    if base is not None:
        axes.axhline(100 * base, color=BASE_COLOUR, linewidth=1.2, linestyle="--", label="base")
    searches = [(each["round"], each["search"]) for each in document["rounds"] if each["search"]]
    series = {
        "rank 1": (WRONG, [(number, one["best_expert"]) for number, one in searches]),
        "vote": (BARS, [(number, one["vote"]) for number, one in searches]),
        "student": (RIGHT, [(one["round"], one["heldout"]) for one in document["rounds"][1:]]),
    }
    for place, (name, (colour, points)) in enumerate(series.items()):
        known = [
            (number + _APART * (place - 1), 100 * one["metric"], one["interval"])
            for number, one in points
            if one["metric"] is not None
        ]
        xs, values = [x for x, _, _ in known], [value for _, value, _ in known]
        axes.plot(xs, values, "o-", color=colour, label=name)
        for x, _, interval in known:
            if interval is not None:
                axes.vlines(x, 100 * interval[0], 100 * interval[1], color=colour, linewidth=1.2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    name_axes(axes, "Held-out accuracy by round", "round", "per cent")
    add_legend(axes)
