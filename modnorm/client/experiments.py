"""Experiments of a lab as frozen values, and their conversion from messages."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from google.protobuf.timestamp_pb2 import Timestamp

from modnorm.analysis.run_data import BaseRow, EnsembleRow
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as messages
from modnorm.wire.conversions import from_message, spec_from_proto, state_name
from modnorm.wire.run_messages import with_remedy


class ExperimentState(StrEnum):
    """The state of an experiment."""

    UNSPECIFIED = "unspecified"
    PENDING = "pending"
    CALIBRATING = "calibrating"
    SAMPLING = "sampling"
    SELECTING = "selecting"
    VOTING = "voting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether an experiment never leaves this state."""
        return self in {self.SUCCEEDED, self.FAILED, self.CANCELLED}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an experiment is."""

    jobs_done: int
    """Jobs done in the present phase."""
    jobs_total: int
    """Jobs of the present phase."""
    jobs_failed: int
    jobs_running: int
    """Leased jobs."""
    best_reward: float | None
    """Best selection reward so far."""
    updates_done: int
    """Finished updates of an iterative run."""
    updates_total: int


@dataclass(frozen=True, slots=True)
class ExperimentSummary:
    """An experiment without its results."""

    id: str
    name: str
    state: ExperimentState
    model: str
    task: str
    method: str
    created: datetime
    ended: datetime | None
    error: str
    """Why it failed, with the remedy; empty if it did not fail."""
    progress: Progress = field(repr=False)


@dataclass(frozen=True, slots=True)
class Experiment(ExperimentSummary):
    """An experiment with the results it has so far."""

    request_id: str
    """The client's name of the request that created it."""
    waits_for: str
    """Why it waits, for a service or a fit evaluator; empty if it does not wait."""
    spec: ExperimentSpec = field(repr=False)
    """The spec with all defaults."""
    base: BaseRow | None
    """The unperturbed model, once known; its counts and times are not filled in."""
    ensembles: tuple[EnsembleRow, ...]
    """The ensembles, once known."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change of an experiment."""

    cursor: int
    """Pass it to `Client.watch` for the events after this one."""
    time: datetime
    message: str
    state: ExperimentState
    """State after the event."""
    progress: Progress
    """Progress after the event."""


def summary_from_message(message: messages.Experiment) -> ExperimentSummary:
    return ExperimentSummary(
        id=message.id,
        name=message.spec.name,
        state=ExperimentState(state_name(message.state)),
        model=message.spec.model.name,
        task=message.spec.task.name,
        method=message.spec.method.name,
        created=_time(message.create_time),
        ended=_time(message.end_time) if message.HasField("end_time") else None,
        error=with_remedy(message.error, message.remedy),
        progress=from_message(Progress, message.progress),
    )


def experiment_from_message(message: messages.Experiment) -> Experiment:
    """Return an experiment with its results so far.

    Raises:
        InvalidInputError: this version does not know its spec.
    """
    summary = summary_from_message(message)
    return Experiment(
        **{name: getattr(summary, name) for name in ExperimentSummary.__dataclass_fields__},
        request_id=message.request_id,
        waits_for=message.waits_for,
        spec=spec_from_proto(message.spec),
        base=from_message(BaseRow, message.base) if message.HasField("base") else None,
        ensembles=tuple(from_message(EnsembleRow, each) for each in message.ensembles),
    )


def event_from_message(message: messages.WatchExperimentResponse) -> Event:
    return Event(
        cursor=message.cursor,
        time=_time(message.time),
        message=message.message,
        state=ExperimentState(state_name(message.state)),
        progress=from_message(Progress, message.progress),
    )


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
