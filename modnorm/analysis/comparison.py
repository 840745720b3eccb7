"""Runs side by side; what makes two runs incomparable is told with them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from modnorm.analysis.document import SCHEMA, ResultsDocument
from modnorm.errors import InvalidInputError
from modnorm.tasks.registry import get_stored_task

_PROFILE = "profile"


@dataclass(frozen=True)
class Results:
    """The results of one run directory."""

    directory: Path
    document: ResultsDocument


class ComparisonRow(TypedDict):
    """One run in a comparison; metrics are held-out fractions, None where not measured."""

    run: str
    """Name of its directory."""
    model: object
    task: object
    method: object
    radius: object
    seed: object
    """As in the spec."""
    population: int | None
    """The largest N."""
    base: float | None
    rank_1: float | None
    """Of the candidate at rank 1 by selection."""
    ensembles: dict[int, float]
    """Metric by K, at the largest N."""
    differs: list[str]
    """What keeps the run from being compared with the first one; empty when nothing does."""
    mixed_environments: Mapping[str, Sequence[str]]
    """Settings in which the machines that answered this run differ."""


def load_results(directory: Path) -> Results:
    """Read the results of a run directory.

    Raises:
        InvalidInputError: there is no `results.json`, or not one of this schema.
    """
    path = directory / "results.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}",
            field="directory",
            remedy="name the folder that a finished run was written to",
        ) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InvalidInputError(f"{path} is not of schema {SCHEMA}", field="directory")
    return Results(directory, cast("ResultsDocument", document))


def comparison(results: Sequence[Results]) -> list[ComparisonRow]:
    """Return one row a run, in the order given; each says how it differs from the first."""
    if not results:
        return []
    expected = _conditions(results[0].document)
    return [_row(result, expected) for result in results]


def _row(result: Results, expected: Mapping[str, object]) -> ComparisonRow:
    document = result.document
    spec = document["spec"]
    method = _section(spec, "method")
    largest = max((e["population"] for e in document["ensembles"]), default=None)
    found = _conditions(document)
    return ComparisonRow(
        run=result.directory.name,
        model=_section(spec, "model").get("name"),
        task=_section(spec, "task").get("name"),
        method=method.get("name"),
        radius=method.get("radius"),
        seed=_section(spec, "population").get("seed"),
        population=largest,
        base=document["base"]["heldout_metric"],
        rank_1=document["experts"][0]["heldout_metric"] if document["experts"] else None,
        ensembles={
            e["ensemble_size"]: e["metric"]
            for e in document["ensembles"]
            if e["population"] == largest
        },
        differs=_differing(found, expected),
        mixed_environments=document.get("mixed_environments", {}),
    )


def _differing(found: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """Return the conditions that differ; a method that uses no profile differs in none from it."""
    return [
        name
        for name, value in found.items()
        if value != expected[name] and (name != _PROFILE or (value and expected[name]))
    ]


def _conditions(document: ResultsDocument) -> dict[str, object]:
    """Return what two runs must share before their figures may be set side by side."""
    spec, provenance = document["spec"], document["provenance"]
    task = _section(spec, "task")
    return {
        "model": provenance.get("model_digest"),
        _PROFILE: provenance.get("profile_digest"),
        "task": task.get("name"),
        "completion cap": _completion_cap(task),
        "scorer": provenance.get("scorer"),
        "selection rows": provenance.get("selection_digest"),
        "held-out rows": provenance.get("heldout_digest"),
        "noise": _section(spec, "population").get("noise"),
    }


def _completion_cap(task: Mapping[str, object]) -> object:
    """Return the cap; where the spec leaves it to the task, the task's, if it is known here."""
    given, declaration = task.get("max_tokens"), task.get("declaration")
    if given is not None:
        return given
    text = declaration if isinstance(declaration, str) else None
    try:
        return get_stored_task(str(task.get("name")), declaration=text).max_tokens
    except InvalidInputError:
        return None


def _section(spec: Mapping[str, object], name: str) -> Mapping[str, object]:
    section = spec.get(name)
    return cast("Mapping[str, object]", section) if isinstance(section, dict) else {}
