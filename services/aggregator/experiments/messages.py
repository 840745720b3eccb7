"""Conversion of stored experiments and events to protobuf messages."""

from modnorm.analysis.run_data import BaseRow
from modnorm.services.aggregator.experiments.experiment_store import ExperimentRecord
from modnorm.services.aggregator.storage.tables import Event, Experiment, ExperimentState
from modnorm.services.common.status_servicer import timestamp
from modnorm.v1 import experiment_pb2
from modnorm.wire.conversions import spec_to_proto, to_message

PROVENANCE = tuple(experiment_pb2.Provenance.DESCRIPTOR.fields_by_name)
"""Columns of an experiment with the inputs of its results."""


def experiment_message(record: ExperimentRecord) -> experiment_pb2.Experiment:
    """Return an experiment with its results."""
    message = experiment_summary(record.experiment, record.progress)
    if record.base != BaseRow():
        message.base.CopyFrom(to_message(experiment_pb2.BaseResult, record.base))
    message.ensembles.extend(
        to_message(experiment_pb2.EnsembleResult, each) for each in record.ensembles
    )
    message.states.extend(
        to_message(experiment_pb2.StateResult, each, lineage_digest=each.lineage)
        for each in record.states
    )
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
        provenance=experiment_pb2.Provenance(
            **{name: getattr(experiment, name) for name in PROVENANCE}
        ),
        last_cursor=experiment.last_cursor,
    )
    if experiment.end_time is not None:
        message.end_time.CopyFrom(timestamp(experiment.end_time))
    return message


def event_message(event: Event) -> experiment_pb2.WatchExperimentResponse:
    return experiment_pb2.WatchExperimentResponse(
        cursor=event.cursor,
        time=timestamp(event.time),
        message=event.message,
        waits_for=event.waits_for,
        state=_state(event.state),
        progress=experiment_pb2.Progress.FromString(event.progress),
    )


def _state(state: ExperimentState) -> experiment_pb2.ExperimentState.ValueType:
    return experiment_pb2.ExperimentState.Value(f"EXPERIMENT_STATE_{state}")
