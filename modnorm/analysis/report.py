"""The one-page report of a run: self-contained HTML that needs no server."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from modnorm.analysis.document import (
    EnsembleEntry,
    ResultsDocument,
    describe_lost_search,
    describe_overlap,
    describe_shortcuts,
    describe_truncated,
)
from modnorm.analysis.environments import describe_mixed

BEST_SHOWN = 10

PLOT_CAPTIONS = {
    "accuracy-by-ensemble-size": "Accuracy of the vote, 95 % Wilson intervals; dashed: the base.",
    "accuracy-by-population": "The same accuracies against the nested population sizes.",
    "reward-histogram": "Selection rewards of all candidates; the base is the dashed line.",
    "vote-support": "Held-out rows by the number of experts that are right.",
}


def render_report(document: ResultsDocument, plots: Mapping[str, bytes]) -> str:
    """Return the report as HTML."""
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
    environment.filters |= {"percent": _percent, "interval": _interval, "reward": _reward}
    return environment


def report_parts(document: ResultsDocument) -> dict[str, object]:
    """Return the values that the templates in `parts` show, by their names there."""
    table: dict[int, dict[int, EnsembleEntry]] = {}  # by N, then K, both ascending
    for ensemble in document["ensembles"]:
        table.setdefault(ensemble["population"], {})[ensemble["ensemble_size"]] = ensemble
    return {
        "document": document,
        "title": str(document["spec"].get("name") or "modnorm run"),
        "sizes": sorted({each["ensemble_size"] for each in document["ensembles"]}),
        "table": table,
        "best": document["experts"][:BEST_SHOWN],
        "settings": settings_text(document["spec"]),
        "overlap": describe_overlap(document),
        "truncated": describe_truncated(document),
        "lost": describe_lost_search(document),
        "shortcuts": describe_shortcuts(document),
        "mixed": describe_mixed(document["mixed_environments"]),
    }


def settings_text(spec: Mapping[str, object]) -> str:
    """Return a spec as YAML."""
    plain = json.loads(json.dumps(spec))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def _percent(value: float | None) -> str:
    return "\u2013" if value is None else f"{100 * value:.1f} %"


def _interval(bounds: Sequence[float] | None) -> str:
    """Return an interval in percent, after a space; empty if there is none."""
    return "" if bounds is None else f" [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"


def _reward(value: float | None) -> str:
    return "\u2013" if value is None else f"{value:.4f}"
