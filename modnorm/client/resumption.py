"""Submission of a spec that may have been submitted before: resume, reuse, repeat nothing."""

from collections.abc import Collection, Iterator
from itertools import count

from modnorm.client.client import Client
from modnorm.client.connection import cancel_experiment, create_experiment, list_experiments
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto

_ENDED_EARLY = (experiments.EXPERIMENT_STATE_FAILED, experiments.EXPERIMENT_STATE_CANCELLED)
_ENDED = (*_ENDED_EARLY, experiments.EXPERIMENT_STATE_SUCCEEDED)


def resume_or_submit(
    client: Client, spec: ExperimentSpec, *, wanted: Collection[str] = ()
) -> experiments.Experiment:
    """Submit a spec to a lab that works for one directory.

    The request id derives from the spec, so that the same spec is the same experiment. A failed
    experiment stays as it is: the next request id starts another, which reuses the finished
    evaluations. A running experiment is cancelled if the new one replaces it: it has another name,
    N, K list, statistics or limits of failures.

    Experiments in `wanted` are never cancelled.
    """
    known = list(list_experiments(client))
    for other in known:
        if other.state in _ENDED or other.id in wanted:
            continue
        running = spec_from_proto(other.spec)
        if running != spec and running.fixed == spec.fixed:
            cancel_experiment(client, other.id)
    early = {other.request_id for other in known if other.state in _ENDED_EARLY}
    request_id = next(name for name in _request_ids(spec) if name not in early)
    return create_experiment(client, spec, request_id)


def resume_or_submit_shared(
    client: Client, spec: ExperimentSpec, prefix: str
) -> experiments.Experiment:
    """Submit a spec to a lab that others use too.

    As in `resume_or_submit`, the same spec is the same experiment, and a failed one is followed
    by another. But no experiment is cancelled, and no list is read.
    """
    for name in _request_ids(spec):
        experiment = create_experiment(client, spec, f"{prefix}/{name}")
        if experiment.state not in _ENDED_EARLY:
            return experiment
    raise AssertionError("unreachable: the request ids are infinite")


def _request_ids(spec: ExperimentSpec) -> Iterator[str]:
    """Yield the request ids of a spec: the first attempt, the second, and so on."""
    yield spec.digest
    for attempt in count(2):
        yield f"{spec.digest}/{attempt}"
