"""The environments in which the answers of a run were given.

One rounding can change a token. Machines that differ in device, libraries or number of threads
may give different answers for one candidate, so a run with several environments reports them.
"""

from collections.abc import Mapping, Sequence

from modnorm.analysis.run_data import CandidateRow, RunData

Environment = Mapping[str, str]

CANARY, CANARY_OF = "canary", "canary_of"
"""Digests of what the base said to a few prompts, and of what it was asked: no settings."""
VERSION = "modnorm"
"""The version of this package. It is recorded and never compared: scorers, prompts and noise have
versions of their own, and canaries show an upgrade that changes answers."""
ABSENT = "unknown"
"""Stands for a setting that one environment names and another does not."""


def environments_of(run: RunData) -> tuple[Environment, ...]:
    """Return the distinct environments of a run, in order of candidates, the base first."""
    found: dict[tuple[tuple[str, str], ...], Environment] = {}
    for row in (run.base, *run.candidates):
        for environment in (row.environment, row.heldout_environment):
            if environment:
                found.setdefault(tuple(sorted(environment.items())), environment)
    return tuple(found.values())


def places(row: CandidateRow, known: Sequence[Environment]) -> dict[str, int | None]:
    """Return the index of the environment of selection and held-out rows; None if unanswered."""
    return {
        "environment": known.index(row.environment) if row.environment else None,
        "heldout_environment": known.index(row.heldout_environment)
        if row.heldout_environment
        else None,
    }


def mixed_settings(environments: Sequence[Environment]) -> dict[str, list[str]]:
    """Return the settings in which environments differ, with the values; empty if none differ.

    Canaries are reported only if all other settings are equal: then they should be equal too.
    """
    settings = [_settings(environment) for environment in environments]
    names = sorted({name for found in settings for name in found})
    values = {name: sorted({found.get(name, ABSENT) for found in settings}) for name in names}
    mixed = {name: several for name, several in values.items() if len(several) > 1}
    alike: dict[frozenset[tuple[str, str]], set[str]] = {}
    for environment in environments:
        if CANARY in environment:
            alike.setdefault(like_of(environment), set()).add(environment[CANARY])
    deviating = sorted(one for said in alike.values() if len(said) > 1 for one in said)
    return {**mixed, CANARY: deviating} if deviating else mixed


def differing_settings(
    first: Sequence[Environment], other: Sequence[Environment]
) -> dict[str, tuple[list[str], list[str]]]:
    """Return the settings in which the environments of two runs differ, with both their values.

    Empty if a run records no environment.
    """
    found = {}
    for name in sorted({name for each in (*first, *other) for name in _settings(each)}):
        one, two = (sorted({each.get(name, ABSENT) for each in run}) for run in (first, other))
        if one and two and one != two:
            found[name] = (one, two)
    return found


def describe_differing(
    differing: Mapping[str, tuple[Sequence[str], Sequence[str]]], first: str, other: str
) -> str | None:
    """Describe the settings in which the environments of two runs differ; None if none differ."""
    if not differing:
        return None
    settings = "; ".join(
        f"{name} {', '.join(one)} and {', '.join(two)}" for name, (one, two) in differing.items()
    )
    return (
        f"{first} and {other} were answered in different environments ({settings}). Rounding may "
        "differ between them, and so may answers."
    )


def _settings(environment: Environment) -> Environment:
    return {
        name: of for name, of in environment.items() if name not in {CANARY, CANARY_OF, VERSION}
    }


def like_of(environment: Environment) -> frozenset[tuple[str, str]]:
    """Return all of an environment that determines its canary."""
    return frozenset(item for item in environment.items() if item[0] not in {CANARY, VERSION})


def describe_mixed(mixed: Mapping[str, Sequence[str]]) -> str | None:
    """Describe the settings in which environments of a run differ; None if none differ."""
    settings = "; ".join(
        f"{name} {', '.join(values)}" for name, values in mixed.items() if name != CANARY
    )
    notes = []
    if settings:
        notes.append(
            f"Not all answers were given in one environment ({settings}). Rounding may differ "
            "between them, and so may answers. timings.json lists each candidate's environment."
        )
    if CANARY in mixed:
        notes.append(
            f"Workers of one environment answered the same prompts differently (canaries "
            f"{', '.join(mixed[CANARY])}): one of them may be faulty. timings.json lists the "
            "worker of each candidate."
        )
    return " ".join(notes) or None
