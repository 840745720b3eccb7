"""Submission of a spec that may have been submitted before: resume, reuse, repeat nothing."""

from collections.abc import Collection

from modnorm.checkpoint.reference import find_local_checkpoint
from modnorm.client.client import Client
from modnorm.client.connection import (
    TERMINAL_STATES,
    UNSUCCESSFUL_STATES,
    cancel_experiment,
    create_experiment,
    list_experiments,
    request_ids,
)
from modnorm.errors import ConflictError
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto


def resume_or_submit(
    client: Client, spec: ExperimentSpec, *, wanted: Collection[str] = ()
) -> experiments.Experiment:
    """Submit a spec to a lab that works for one directory.

    The request id derives from the spec, so that the same spec is the same experiment. A failed
    experiment stays as it is: the next request id starts another, which reuses the finished
    evaluations. A running experiment is cancelled if the new one replaces it: it has another name,
    N, K list or limits of failures.

    Experiments in `wanted` are never cancelled.
    """
    known = list(list_experiments(client))
    for other in known:
        if other.state in TERMINAL_STATES or other.id in wanted:
            continue
        running = spec_from_proto(other.spec)
        if running != spec and running.fixed == spec.fixed:
            cancel_experiment(client, other.id)
    early = {other.request_id for other in known if other.state in UNSUCCESSFUL_STATES}
    request_id = next(name for name in request_ids(spec.digest) if name not in early)
    return create_experiment(client, spec, request_id)


def resume_or_submit_shared(
    client: Client, spec: ExperimentSpec, prefix: str
) -> experiments.Experiment:
    """Submit a spec to a lab that others use too."""
    names = request_ids(f"{prefix}/{spec.digest}")
    attempts = (create_experiment(client, spec, name) for name in names)
    return next(each for each in attempts if each.state not in UNSUCCESSFUL_STATES)


def check_model_unchanged(spec: ExperimentSpec, provenance: experiments.Provenance) -> None:
    """Refuse a model on this machine that was edited since its experiment started.

    The lab checks the other files of a spec, since it reads them itself.
    """
    model = find_local_checkpoint(spec.model.name)
    if model is not None and model.digest != provenance.model_digest:
        raise ConflictError(
            f"changed since the experiment started: {provenance.model_digest[:32]} then, "
            f"{model.digest[:32]} now",
            field="model",
            remedy="restore the old weights, or name another directory with --out",
        )
