"""Messages of a lab about a finished experiment, as plain data of `modnorm.analysis`."""

from collections.abc import Mapping

from google.protobuf import json_format

from modnorm.analysis.run_data import BaseRow, EnsembleRow
from modnorm.analysis.run_files import STARTING
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import from_message, state_name


def failure_text(failed: experiments.Experiment) -> str:
    """Return why something failed, with the remedy if it is known; empty if it did not fail."""
    return f"{failed.error} ({failed.remedy})" if failed.remedy else failed.error


def provenance(experiment: experiments.Experiment) -> Mapping[str, object]:
    """Return digests and names of all inputs of an experiment's results."""
    return json_format.MessageToDict(
        experiment.provenance,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def base_row(message: experiments.BaseResult) -> BaseRow:
    """Return the unperturbed model, without counts and times."""
    return from_message(BaseRow, message)


def ensemble_row(message: experiments.EnsembleResult) -> EnsembleRow:
    return from_message(EnsembleRow, message)


def phase_of(event: experiments.WatchExperimentResponse) -> str:
    """Return what an experiment does after an event: its state, or the start of an engine."""
    return STARTING if event.progress.engine_stage else state_name(event.state)


def extent(at: experiments.WatchExperimentResponse | experiments.Experiment) -> tuple[int, int]:
    """Return finished and total items of the present phase: jobs, prompts or updates."""
    progress = at.progress
    if at.state == experiments.EXPERIMENT_STATE_SELECTING and progress.updates_total:
        return progress.updates_done, progress.updates_total
    if at.state == experiments.EXPERIMENT_STATE_CALIBRATING:
        return progress.examples_done, progress.examples_total
    return progress.jobs_done, progress.jobs_total
