"""Messages of a lab about a finished experiment, as plain data of `modnorm.analysis`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from google.protobuf import json_format

from modnorm.analysis.run_data import BaseRow, EnsembleRow, RowsRecord, StateRow
from modnorm.analysis.run_files import STARTING
from modnorm.tasks import Task
from modnorm.tasks.task_errors import count_shared_prompts
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


def data_records(experiment: experiments.Experiment) -> dict[str, RowsRecord]:
    """Return which rows an experiment used, by split."""
    task, made_from = experiment.spec.task, experiment.provenance
    return {
        "selection": _rows_record(
            task.selection,
            made_from.selection_revision,
            made_from.selection_rows,
            made_from.selection_digest,
        ),
        "heldout": _rows_record(
            task.heldout,
            made_from.heldout_revision,
            made_from.heldout_rows,
            made_from.heldout_digest,
        ),
    }


def _rows_record(spec: experiments.DataSpec, revision: str, rows: int, digest: str) -> RowsRecord:
    return RowsRecord(
        source=spec.source,
        config=spec.config if spec.HasField("config") else None,
        split=spec.split if spec.HasField("split") else None,
        revision=revision or spec.revision or None,
        offset=spec.offset,
        rows=rows,
        digest=digest,
    )


def overlap(task: Task | None, selection: Sequence[str], heldout: Sequence[str]) -> int:
    """Count the held-out rows that have the prompt of a selection row."""
    if task is None:
        known = set(selection)
        return sum(row in known for row in heldout)
    return count_shared_prompts(
        task, [json.loads(row) for row in selection], [json.loads(row) for row in heldout]
    )


def base_row(message: experiments.BaseResult) -> BaseRow:
    """Return the unperturbed model, without counts and times."""
    return from_message(BaseRow, message)


def ensemble_row(message: experiments.EnsembleResult) -> EnsembleRow:
    """Return one ensemble."""
    return from_message(EnsembleRow, message)


def state_row(message: experiments.StateResult) -> StateRow:
    """Return one state of an iterative run."""
    return from_message(StateRow, message, lineage=message.lineage_digest)


def timings(
    experiment: experiments.Experiment, events: Iterable[experiments.WatchExperimentResponse]
) -> dict[str, object]:
    """Return ids and times."""
    return {
        "experiment": experiment.id,
        "request": experiment.request_id,
        "created": experiment.create_time.ToJsonString(),
        "ended": experiment.end_time.ToJsonString(),
        "phases": phase_seconds(events),
    }


def phase_seconds(events: Iterable[experiments.WatchExperimentResponse]) -> dict[str, float]:
    """Return the seconds that an experiment spent in each state, and on starts of engines."""
    phases: dict[str, float] = {}
    for event, following in pairwise(events):
        name = phase_of(event)
        seconds = (following.time.ToMicroseconds() - event.time.ToMicroseconds()) / 1e6
        phases[name] = phases.get(name, 0.0) + seconds
    return phases


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
