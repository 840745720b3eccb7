"""The same spec once more: what is there goes on, nothing is done twice."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, count

from modnorm.client.client import ModnormClient
from modnorm.errors import ForbiddenError
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto, spec_to_proto

_ENDED_EARLY = (experiments.EXPERIMENT_STATE_FAILED, experiments.EXPERIMENT_STATE_CANCELLED)
_ENDED = (*_ENDED_EARLY, experiments.EXPERIMENT_STATE_SUCCEEDED)


@dataclass(frozen=True, slots=True)
class Joined:
    """An experiment that was submitted, or was at work already."""

    experiment: experiments.Experiment
    is_found: bool
    """It was seen at work before it was asked for."""


def take_up(
    client: ModnormClient, spec: ExperimentSpec, *, wanted: Collection[str] = ()
) -> experiments.Experiment:
    """Submit a spec to a lab that works for one directory.

    The request id is made from the spec, so that the same spec is the same experiment. One that
    failed stays as it is: the next request id in line makes another, to which the lab hands what
    was finished. One that goes on, but was to give up at another point, or to leave out what the
    new one does not, is cancelled in favour of the new one.

    Args:
        client: Connection to the lab.
        spec: What to run.
        wanted: Ids of experiments that are not cancelled, whatever they were to do.
    """
    known = list(client.list())
    for other in known:
        if other.state in _ENDED or other.id in wanted:
            continue
        if _makes_way(spec_from_proto(other.spec), spec):
            client.cancel(other.id)
    early = {other.request_id for other in known if other.state in _ENDED_EARLY}
    request_id = next(name for name in _request_ids(spec) if name not in early)
    return client.submit(spec, request_id=request_id)


def take_up_shared(
    client: ModnormClient, spec: ExperimentSpec, prefix: str
) -> experiments.Experiment:
    """Submit a spec to a lab that others use too.

    Like `take_up`, the same spec is the same experiment, and one that failed is followed by
    another; but nothing that somebody else may want is cancelled, and no list is read.

    Args:
        client: Connection to the lab.
        spec: What to run.
        prefix: What request ids of this kind begin with.
    """
    for name in _request_ids(spec):
        experiment = client.submit(spec, request_id=f"{prefix}/{name}")
        if experiment.state not in _ENDED_EARLY:
            return experiment
    raise AssertionError("request ids do not end")


def join_live(client: ModnormClient, spec: ExperimentSpec, prefix: str) -> Joined:
    """Submit a spec to a lab, unless an experiment of it is at work there, whoever submitted that.

    One that ended, well or not, is followed by another. Those who submit a spec at the same time
    share one experiment: request ids are made from the spec, or are that of what is at work.

    Args:
        client: Connection to the lab.
        spec: What to run.
        prefix: What request ids of this kind begin with.
    """
    live = _find_live(client, spec)
    names = (f"{prefix}/{name}" for name in _request_ids(spec))
    for request_id in chain((live.request_id,) if live else (), names):
        # An operator sees what other tenants have too; a request finds the caller's own alone.
        experiment = client.submit(spec, request_id=request_id)
        if experiment.state not in _ENDED:
            return Joined(experiment, live is not None and experiment.id == live.id)
    raise AssertionError("request ids do not end")


def _find_live(client: ModnormClient, spec: ExperimentSpec) -> experiments.Experiment | None:
    """Return an experiment of a spec that is at work; None where there is none in sight."""
    wanted = spec_to_proto(spec)
    try:
        return next(
            (one for one in client.list() if one.state not in _ENDED and one.spec == wanted), None
        )
    except ForbiddenError:  # a token may be good for submitting alone
        return None


def _makes_way(other: ExperimentSpec, spec: ExperimentSpec) -> bool:
    """Tell whether another spec's experiment would do what the experiment of a spec takes over."""
    return other != spec and spec.can_reuse(other)


def _request_ids(spec: ExperimentSpec) -> Iterator[str]:
    """Yield the names that requests of a spec have, one after another."""
    yield spec.digest
    for attempt in count(2):
        yield f"{spec.digest}/{attempt}"
