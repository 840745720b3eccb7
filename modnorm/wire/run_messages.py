"""Messages of a lab about a finished experiment, as plain data of `modnorm.analysis`."""

from modnorm.analysis.run_files import STARTING
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name


def with_remedy(reason: str, remedy: str) -> str:
    """Return reason and remedy as one text; empty if nothing failed."""
    return f"{reason} ({remedy})" if remedy else reason


def phase_of(event: experiments.WatchExperimentResponse) -> str:
    """Return what an experiment does after an event: its state, or the start of an engine."""
    return STARTING if event.progress.engine_stage else state_name(event.state)


def extent(
    shown: experiments.WatchExperimentResponse | experiments.Experiment,
) -> tuple[int, int, str]:
    """Return finished items, all items and the unit of a phase: jobs, prompts or updates."""
    progress = shown.progress
    if shown.state == experiments.EXPERIMENT_STATE_SELECTING and progress.updates_total:
        return progress.updates_done, progress.updates_total, "updates"
    if shown.state == experiments.EXPERIMENT_STATE_CALIBRATING:
        return progress.examples_done, progress.examples_total, "prompts"
    return progress.jobs_done, progress.jobs_total, "jobs"
