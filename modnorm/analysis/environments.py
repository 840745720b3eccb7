"""Where the answers of a run were given, as far as rounding may depend on it.

One rounding can turn a token. Machines that differ in device, libraries or number of threads may
give other answers to the same candidate, so a run that was spread over such machines says so.
"""

from collections.abc import Mapping, Sequence

from modnorm.analysis.run_data import BaseRow, CandidateRow, RunData

Environment = Mapping[str, str]

ABSENT = "unknown"
"""Stands for a setting that one environment names and another does not."""


def environments_of(run: RunData) -> tuple[Environment, ...]:
    """Return the environments of a run, each once, in the order of candidates, the base first."""
    found: dict[tuple[tuple[str, str], ...], Environment] = {}
    rows: tuple[BaseRow | CandidateRow, ...] = (run.base, *run.candidates)
    for row in rows:
        for environment in (row.environment, row.heldout_environment):
            if environment:
                found.setdefault(tuple(sorted(environment.items())), environment)
    return tuple(found.values())


def places(row: BaseRow | CandidateRow, known: Sequence[Environment]) -> dict[str, int | None]:
    """Return by index where the selection and held-out rows were answered; None where not."""
    return {
        "environment": known.index(row.environment) if row.environment else None,
        "heldout_environment": known.index(row.heldout_environment)
        if row.heldout_environment
        else None,
    }


def mixed_settings(environments: Sequence[Environment]) -> dict[str, list[str]]:
    """Return what environments differ in, and the values; empty when they are all alike."""
    names = sorted({name for environment in environments for name in environment})
    values = {
        name: sorted({environment.get(name, ABSENT) for environment in environments})
        for name in names
    }
    return {name: several for name, several in values.items() if len(several) > 1}


def describe_mixed(mixed: Mapping[str, Sequence[str]]) -> str | None:
    """Say what the environments of a run differ in; None when they are all alike."""
    if not mixed:
        return None
    settings = "; ".join(f"{name} {', '.join(values)}" for name, values in mixed.items())
    return (
        f"Not all answers were given in one environment ({settings}). Rounding may differ between "
        "them, and with it answers; timings.json says what was answered where."
    )
