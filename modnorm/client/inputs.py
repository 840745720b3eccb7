"""Check that the files of a spec are unchanged since its experiment started."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from modnorm.calibration.profile import Profile
from modnorm.checkpoint.reference import find_local_checkpoint
from modnorm.errors import ConflictError
from modnorm.files import is_digest
from modnorm.host import expand_home
from modnorm.spec import ExperimentSpec
from modnorm.spec_checks import development_of, task_of
from modnorm.tasks.columns import prompts_digest, rows_digest
from modnorm.tasks.row_loading import load_rows
from modnorm.tasks.sources import is_dataset
from modnorm.tasks.task_errors import render_prompts
from modnorm.v1.experiment_pb2 import Provenance


def check_inputs(
    spec: ExperimentSpec, provenance: Provenance, *, folders: Sequence[Path] | None = None
) -> None:
    """Compare the inputs of a spec on this machine with those of its experiment.

    A spec holds paths, not contents: after a file was edited, the same spec still finds the same
    experiment. Inputs on the Hugging Face Hub are not checked.

    The paths of the spec are paths of this machine.
    """
    for field, digest, expected in _digests(spec, provenance, folders):
        if digest != expected:
            raise ConflictError(
                f"changed since the experiment started: {expected[:32]} then, {digest[:32]} now",
                field=field,
                remedy="name another directory with --out, or restore the old content",
            )


def _digests(
    spec: ExperimentSpec, provenance: Provenance, folders: Sequence[Path] | None
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
            rows = load_rows(task, named_rows, field=field, folders=folders)
            yield field, rows_digest(rows), digest
            if field == "task.heldout" and provenance.prompts_digest:
                prompts = render_prompts(task, rows, "heldout row")
                yield "task", prompts_digest(prompts), provenance.prompts_digest
    model, profile = find_local_checkpoint(spec.model.name), spec.method.profile
    if model is not None:
        yield "model", model.digest, provenance.model_digest
    if profile is not None and not is_digest(profile):
        path = expand_home(Path(profile), "method.profile")
        yield "method.profile", Profile.load(path).digest, provenance.profile_digest
