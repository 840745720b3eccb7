"""Messages of a lab about a finished experiment, as plain data of `modnorm.analysis`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from google.protobuf import json_format
from google.protobuf.message import Message

from modnorm.analysis.answers import BASE_INDEX
from modnorm.analysis.phase_times import STARTING
from modnorm.analysis.run_data import (
    BaseRow,
    CandidateRow,
    EnsembleRow,
    RowsRecord,
    StateRow,
    VoteRow,
)
from modnorm.search.stopping import Interval
from modnorm.tasks import Task
from modnorm.tasks.task_errors import count_shared_prompts
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name

_STATES = {
    experiments.CANDIDATE_STATE_SCORED: "scored",
    experiments.CANDIDATE_STATE_STOPPED: "stopped",
}


def failure_text(failed: experiments.Experiment | experiments.Candidate) -> str:
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


def candidate_row(message: experiments.Candidate) -> CandidateRow:
    """Return one candidate."""
    scored = message.state == experiments.CANDIDATE_STATE_SCORED
    return CandidateRow(
        index=message.index,
        seed=message.descriptor.seed,
        state=_STATES.get(message.state, "failed"),
        stopped=Interval(message.reward_lower, message.reward_upper)
        if message.state == experiments.CANDIDATE_STATE_STOPPED
        else None,
        selection_reward=message.selection_reward if scored else None,
        heldout_metric=_known(message, "heldout_metric"),
        selection_tokens=message.selection_tokens,
        selection_answers=message.selection_answers,
        selection_correct=message.selection_correct,
        selection_valid=message.selection_valid,
        selection_truncated=message.selection_truncated,
        heldout_answers=message.heldout_answers,
        heldout_valid=message.heldout_valid,
        heldout_truncated=message.heldout_truncated,
        attempts=message.attempts,
        worker=message.worker,
        seconds=message.seconds,
        heldout_attempts=message.heldout_attempts,
        heldout_seconds=message.heldout_seconds,
        error=failure_text(message),
        environment=dict(message.environment),
        heldout_environment=dict(message.heldout_environment),
    )


def base_row(
    message: experiments.BaseResult, candidates: Sequence[experiments.Candidate]
) -> BaseRow:
    """Return the unperturbed model."""
    jobs = next((each for each in candidates if each.index == BASE_INDEX), experiments.Candidate())
    return BaseRow(
        selection_reward=_known(message, "selection_reward"),
        heldout_metric=_known(message, "heldout_metric"),
        selection_answers=jobs.selection_answers,
        selection_correct=jobs.selection_correct,
        selection_valid=jobs.selection_valid,
        selection_truncated=jobs.selection_truncated,
        heldout_answers=jobs.heldout_answers,
        heldout_valid=jobs.heldout_valid,
        heldout_truncated=jobs.heldout_truncated,
        seconds=jobs.seconds,
        heldout_seconds=jobs.heldout_seconds,
        environment=dict(jobs.environment),
        heldout_environment=dict(jobs.heldout_environment),
    )


def ensemble_row(message: experiments.EnsembleResult) -> EnsembleRow:
    """Return one ensemble."""
    return EnsembleRow(
        population=message.population,
        ensemble_size=message.ensemble_size,
        experts=tuple(message.experts),
        metric=message.metric,
        correct=message.correct,
        rows=message.rows,
    )


def state_row(message: experiments.StateResult) -> StateRow:
    """Return one state of an iterative run."""
    return StateRow(
        updates=message.updates,
        lineage=message.lineage_digest,
        reported=message.reported,
        development_answers=message.development_answers,
        development_tokens=message.development_tokens,
        development_attempts=message.development_attempts,
        heldout_answers=message.heldout_answers,
        heldout_tokens=message.heldout_tokens,
        heldout_attempts=message.heldout_attempts,
        heldout_valid=message.heldout_valid,
        heldout_truncated=message.heldout_truncated,
        mean_reward=_known(message, "mean_reward"),
        development_metric=_known(message, "development_metric"),
        development_reward=_known(message, "development_reward"),
        heldout_metric=_known(message, "heldout_metric"),
    )


def _known(message: Message, field: str) -> float | None:
    """Return an optional number of a message."""
    number: float | None = getattr(message, field) if message.HasField(field) else None
    return number


def vote_row(message: experiments.Vote) -> VoteRow:
    """Return one vote."""
    return VoteRow(
        row=message.row,
        answer=message.answer if message.HasField("answer") else None,
        correct=message.correct,
        valid=message.valid,
        support=message.support,
        correct_support=message.correct_support,
        skipped=message.skipped,
    )


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
