"""Conversion of stored experiments and events to protobuf messages."""

import json
from collections.abc import Mapping

from modnorm.services.aggregator.experiments.records import ExperimentRecord, StateRecord
from modnorm.services.aggregator.storage.states import ExperimentState, Split
from modnorm.services.aggregator.storage.tables import Ensemble, Event, Experiment
from modnorm.services.common.status_servicer import timestamp
from modnorm.v1 import experiment_pb2
from modnorm.wire.conversions import spec_to_proto


def experiment_message(record: ExperimentRecord) -> experiment_pb2.Experiment:
    """Return an experiment with its results."""
    message = experiment_summary(record.experiment, record.progress)
    metrics = {job.split: job.metric for job in record.base}
    if {Split.SELECTION, Split.HELDOUT} & metrics.keys():
        message.base.CopyFrom(
            experiment_pb2.BaseResult(
                selection_reward=metrics.get(Split.SELECTION),
                heldout_metric=metrics.get(Split.HELDOUT),
            )
        )
    message.ensembles.extend(_ensemble(each, record.answered) for each in record.ensembles)
    message.states.extend(map(_state_result, record.states))
    return message


def experiment_summary(
    experiment: Experiment, progress: experiment_pb2.Progress
) -> experiment_pb2.Experiment:
    """Return an experiment without its results."""
    message = experiment_pb2.Experiment(
        id=experiment.id,
        request_id=experiment.request_id,
        spec=spec_to_proto(experiment.spec),
        state=_state(experiment.state),
        error=experiment.error,
        remedy=experiment.remedy,
        waits_for=experiment.waits_for,
        create_time=timestamp(experiment.create_time),
        progress=progress,
        provenance=_provenance(experiment),
        last_cursor=experiment.last_cursor,
    )
    if experiment.end_time is not None:
        message.end_time.CopyFrom(timestamp(experiment.end_time))
    return message


def event_message(event: Event) -> experiment_pb2.WatchExperimentResponse:
    """Return one event."""
    return experiment_pb2.WatchExperimentResponse(
        cursor=event.cursor,
        time=timestamp(event.time),
        message=event.message,
        waits_for=event.waits_for,
        state=_state(event.state),
        progress=experiment_pb2.Progress.FromString(event.progress),
    )


def _state_result(state: StateRecord) -> experiment_pb2.StateResult:
    development, heldout = state.development, state.heldout
    return experiment_pb2.StateResult(
        updates=state.updates,
        lineage_digest=state.digest,
        development_metric=state.result.accuracy if state.result else None,
        development_reward=state.result.reward if state.result else None,
        heldout_metric=heldout.metric if heldout else None,
        reported=state.reported,
        mean_reward=state.mean_reward,
        development_answers=development.answers_done if development else 0,
        development_tokens=development.tokens if development else 0,
        development_attempts=development.attempts if development else 0,
        heldout_answers=heldout.answers_done if heldout else 0,
        heldout_tokens=heldout.tokens if heldout else 0,
        heldout_attempts=heldout.attempts if heldout else 0,
        heldout_valid=heldout.valid if heldout else 0,
        heldout_truncated=heldout.truncated if heldout else 0,
    )


def _ensemble(
    ensemble: Ensemble, answered: Mapping[int, tuple[int, int, int]]
) -> experiment_pb2.EnsembleResult:
    experts = json.loads(ensemble.experts)
    counts = [answered.get(expert, (0, 0, 0)) for expert in experts]
    answers, valid, truncated = map(sum, zip(*counts, strict=True))
    return experiment_pb2.EnsembleResult(
        population=ensemble.population,
        ensemble_size=ensemble.ensemble_size,
        experts=experts,
        metric=ensemble.metric,
        correct=ensemble.correct,
        rows=ensemble.rows,
        answers=answers,
        valid=valid,
        truncated=truncated,
    )


def _provenance(experiment: Experiment) -> experiment_pb2.Provenance:
    return experiment_pb2.Provenance(
        model_digest=experiment.model_digest,
        profile_digest=experiment.profile_digest or "",
        scale_map_digest=experiment.scale_map_digest or "",
        selection_digest=experiment.selection_digest,
        heldout_digest=experiment.heldout_digest,
        selection_rows=experiment.selection_rows,
        heldout_rows=experiment.heldout_rows,
        scorer=experiment.scorer,
        spec_digest=experiment.spec_digest,
        selection_revision=experiment.selection_revision or "",
        heldout_revision=experiment.heldout_revision or "",
        development_digest=experiment.development_digest,
        development_rows=experiment.development_rows,
        generator_digest=experiment.generator_digest,
        prompts_digest=experiment.prompts_digest,
        max_tokens=experiment.max_tokens,
    )


def _state(state: ExperimentState) -> experiment_pb2.ExperimentState.ValueType:
    return experiment_pb2.ExperimentState.Value(f"EXPERIMENT_STATE_{state}")
