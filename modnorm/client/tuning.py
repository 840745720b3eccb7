"""Choosing a scale as the paper does (app. B, "Scale selection")."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from modnorm.errors import InvalidInputError
from modnorm.spec import DataSpec, ExperimentSpec, parse_section, parse_spec


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment of a grid search."""

    radius: float
    seed: int
    metric: float
    """Ensemble metric on the development rows, a fraction."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One radius over all seeds."""

    radius: float
    mean: float
    """Mean metric over the seeds."""
    metrics: tuple[float, ...]
    """Metric under each seed, in the order of the trials."""


def development_rows(text: str) -> DataSpec:
    """Read rows as they stand under `task.heldout` in a spec.

    Args:
        text: A source, whose rows are all taken, or a mapping in YAML's braces:
            `{source: dev.jsonl, offset: 200, limit: 100}`.

    Raises:
        InvalidInputError: this is neither.
    """
    if not text.startswith("{"):
        return parse_section(DataSpec, {"source": text}, field="heldout")
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInputError(
            f"{text!r} is not YAML: {error}",
            field="heldout",
            remedy="for instance {source: dev.jsonl, offset: 200, limit: 100}",
        ) from error
    return parse_section(DataSpec, content, field="heldout")


def trial_spec(
    spec: ExperimentSpec,
    *,
    radius: float,
    seed: int,
    heldout: DataSpec | None,
    ensemble_size: int,
) -> ExperimentSpec:
    """Return the experiment of one trial: N alone, K alone, voted on the development rows.

    Args:
        spec: The experiment to tune.
        radius: R, or sigma for isotropic noise.
        seed: Population seed.
        heldout: Development rows; the held-out rows of the spec when absent.
        ensemble_size: K.

    Raises:
        InvalidInputError: the trial is no valid experiment (K greater than N, say).
    """
    data = spec.model_dump(mode="json")
    rows = heldout or spec.task.heldout
    return parse_spec(
        {
            **data,
            "name": f"{spec.name or spec.method.name} scale {radius:g} seed {seed}",
            "task": {**data["task"], "heldout": rows.model_dump(mode="json")},
            "method": {**data["method"], "radius": radius},
            "population": {
                **data["population"],
                "seed": seed,
                "prefixes": [spec.population.size],
                "ensemble_sizes": [ensemble_size],
            },
        }
    )


def summarise(trials: Sequence[Trial]) -> tuple[Scale, ...]:
    """Return the mean of each radius, ascending by radius."""
    radii = sorted({trial.radius for trial in trials})
    return tuple(_scale(radius, trials) for radius in radii)


def select_scale(scales: Sequence[Scale]) -> Scale:
    """Return the scale with the highest mean metric; of exact ties, the smallest radius."""
    return min(scales, key=lambda scale: (-scale.mean, scale.radius))


def _scale(radius: float, trials: Sequence[Trial]) -> Scale:
    metrics = tuple(trial.metric for trial in trials if trial.radius == radius)
    return Scale(radius, math.fsum(metrics) / len(metrics), metrics)
