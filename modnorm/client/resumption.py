"""Submission of a spec that may have been submitted before: resume, reuse, repeat nothing."""

from collections.abc import Collection, Iterator, Sequence
from itertools import count
from pathlib import Path

from modnorm.calibration.profile import Profile
from modnorm.checkpoint.reference import find_local_checkpoint
from modnorm.client.client import Client
from modnorm.client.connection import (
    TERMINAL_STATES,
    UNSUCCESSFUL_STATES,
    cancel_experiment,
    create_experiment,
    list_experiments,
)
from modnorm.errors import ConflictError
from modnorm.files import is_digest
from modnorm.host import expand_home
from modnorm.spec import ExperimentSpec
from modnorm.spec_checks import development_of, task_of
from modnorm.tasks.columns import prompts_digest, rows_digest
from modnorm.tasks.row_loading import is_dataset, load_data
from modnorm.tasks.task_errors import render_prompts
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
    request_id = next(name for name in _request_ids(spec) if name not in early)
    return create_experiment(client, spec, request_id)


def resume_or_submit_shared(
    client: Client, spec: ExperimentSpec, prefix: str
) -> experiments.Experiment:
    """Submit a spec to a lab that others use too."""
    for name in _request_ids(spec):
        experiment = create_experiment(client, spec, f"{prefix}/{name}")
        if experiment.state not in UNSUCCESSFUL_STATES:
            return experiment
    raise AssertionError("unreachable: the request ids are infinite")


def _request_ids(spec: ExperimentSpec) -> Iterator[str]:
    """Yield the request ids of a spec: the first attempt, the second, and so on."""
    yield spec.digest
    for attempt in count(2):
        yield f"{spec.digest}/{attempt}"


def check_inputs(
    spec: ExperimentSpec,
    provenance: experiments.Provenance,
    *,
    folders: Sequence[Path] | None = None,
) -> None:
    """Refuse a spec of which a file on this machine was edited since its experiment started.

    A spec holds paths, not contents, so it still finds the same experiment.
    """
    for field, digest, expected in _digests(spec, provenance, folders):
        if digest != expected:
            raise ConflictError(
                f"changed since the experiment started: {expected[:32]} then, {digest[:32]} now",
                field=field,
                remedy="name another directory with --out, or restore the old content",
            )


def _digests(
    spec: ExperimentSpec, provenance: experiments.Provenance, folders: Sequence[Path] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield each input on this machine: field, digest now, digest then."""
    task = task_of(spec)
    yield "task", task.scorer, provenance.scorer
    splits = [
        ("task.selection", spec.task.selection, provenance.selection_digest),
        ("task.heldout", spec.task.heldout, provenance.heldout_digest),
    ]
    place, chosen_on = development_of(spec)
    if chosen_on is not None:
        splits.append((place, chosen_on, provenance.development_digest))
    for field, named_rows, digest in splits:
        if not is_dataset(named_rows.source):
            rows = load_data(task, named_rows, field=field, folders=folders).rows
            yield field, rows_digest(rows), digest
            if field == "task.heldout":
                prompts = render_prompts(task, rows, "heldout row")
                yield "task", prompts_digest(prompts), provenance.prompts_digest
    model, profile = find_local_checkpoint(spec.model.name), spec.method.profile
    if model is not None:
        yield "model", model.digest, provenance.model_digest
    if profile is not None and not is_digest(profile):
        path = expand_home(Path(profile), "method.profile")
        yield "method.profile", Profile.load(path).digest, provenance.profile_digest
