"""The trials of `modnorm tune`, checked before a lab is used."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from modnorm.cli.options import settings
from modnorm.client.development import check_development_rows
from modnorm.client.tuning import development_rows, trial_spec
from modnorm.errors import InvalidInputError, ModnormError
from modnorm.spec import DataSpec, ExperimentSpec

_OPTIONS = {
    "task.heldout": "heldout",
    "method.radius": "radii",
    "population.seed": "seeds",
    "population.ensemble_sizes": "ensemble-size",
}
"""Option that sets a field of every trial, whatever the spec says."""


@contextmanager
def naming_options() -> Iterator[None]:
    """Raise the error of a trial anew where an option set its field; the new one names the option.

    It names no line of the spec.
    """
    try:
        yield
    except ModnormError as error:
        field = error.field or ""
        for name, option in _OPTIONS.items():
            if f"{field}.".startswith(f"{name}."):
                named = f"{option}{field.removeprefix(name)}"
                raise type(error)(error.message, field=named, remedy=error.remedy) from error
        raise


def plan_trials(
    spec: ExperimentSpec,
    *,
    radii: Sequence[float],
    seeds: Sequence[int],
    heldout: str | None,
    ensemble_size: int | None,
) -> list[ExperimentSpec]:
    """Return the specs of all trials: every radius under every seed.

    The default ensemble size is the largest of the spec.

    Raises:
        InvalidInputError: a trial is invalid or moves nothing, or a development row is a held-out
            row.
    """
    if 0 in radii:  # for a spec that is a radius which was not given
        raise InvalidInputError(
            "0 moves nothing, so every candidate is the base",
            field="radii",
            remedy="name positive numbers, for instance 0.08,0.16,0.32",
        )
    rows = _development(spec, heldout)
    size = ensemble_size or max(spec.population.ensemble_sizes)
    return [
        trial_spec(spec, radius=radius, seed=seed, heldout=rows, ensemble_size=size)
        for radius in radii
        for seed in seeds
    ]


def _development(spec: ExperimentSpec, heldout: str | None) -> DataSpec:
    """Return the development rows; the spec's held-out rows are kept for the test."""
    if heldout is None:
        raise InvalidInputError(
            "development rows are missing, and the spec's held-out rows are for the test",
            field="heldout",
            remedy="name other rows: --heldout '{source: dev.jsonl, limit: 100}'",
        )
    rows = development_rows(heldout)
    check_development_rows(spec, rows, folders=settings().split_folders)
    return rows
