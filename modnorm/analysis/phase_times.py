"""The seconds of a run's phases, by the names that people read."""

from collections.abc import Mapping

STARTING = "starting"
"""Name in `timings.json` of the time that a run waited for the start of an engine."""
REPORTING = "reporting"
"""Name of the time that fetching a finished run and writing its files took."""

_NAMES = {
    "pending": "start",
    STARTING: "start",
    "calibrating": "calibrate",
    "sampling": "sample",
    "selecting": "search",
    "voting": "vote",
    REPORTING: "report",
}


def phase_name(phase: str) -> str:
    """Return the short name of a state of an experiment, or of another phase."""
    return _NAMES.get(phase, phase)


def describe_seconds(timings: Mapping[str, object]) -> str | None:
    """Describe the seconds of each phase, in order; None if they are not known."""
    phases = timings.get("phases")
    seconds: dict[str, float] = {}
    for phase, name in _NAMES.items():
        if isinstance(phases, dict) and phase in phases:
            seconds[name] = seconds.get(name, 0.0) + phases[phase]
    figures = [f"{name} {each:.1f}" for name, each in seconds.items()]
    return f"seconds: {', '.join(figures)}" if figures else None
