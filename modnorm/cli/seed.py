"""The seed option: the same spec under another population seed."""

from typing import Annotated

import typer

from modnorm.spec import ExperimentSpec, parse_spec

Seed = Annotated[
    int | None, typer.Option("--seed", help="Population seed instead of the one in the spec.")
]


def seeded(spec: ExperimentSpec, seed: int | None) -> ExperimentSpec:
    """Return the spec under another population seed.

    Raises:
        InvalidInputError: the seed is out of bounds.
    """
    if seed is None:
        return spec
    data = spec.model_dump(mode="json")
    return parse_spec({**data, "population": {**data["population"], "seed": seed}})
