"""Whether the files that a spec names still hold what an experiment was made from."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from modnorm.calibration.profile import Profile
from modnorm.checkpoint.reference import bundled_models, resolve_checkpoint
from modnorm.errors import ConflictError
from modnorm.spec import ExperimentSpec
from modnorm.tasks.registry import get_task
from modnorm.tasks.row_loading import load_rows, rows_digest
from modnorm.tasks.sources import is_dataset
from modnorm.v1.experiment_pb2 import Provenance

_DIGEST = re.compile(r"[0-9a-f]{64}")


def check_inputs(
    spec: ExperimentSpec, provenance: Provenance, *, folders: Sequence[Path] | None = None
) -> None:
    """Compare what a spec names on this machine with what its experiment was made from.

    A spec holds paths, not contents: the same spec finds the same experiment after a file was
    edited. What lies on the Hugging Face Hub is not asked for again.

    Args:
        spec: The experiment's spec; its paths are paths of this machine.
        provenance: What the experiment was made from.
        folders: Where named splits are looked for; the default folder when None.

    Raises:
        ConflictError: an input holds something else by now; names its field.
        InvalidInputError: an input is gone, or is no longer sound.
    """
    for field, found, expected in _digests(spec, provenance, folders):
        if found != expected:
            raise ConflictError(
                f"it changed since the experiment began: {expected[:32]} then, {found[:32]} now",
                field=field,
                remedy="name another directory with --out, or bring the old content back",
            )


def _digests(
    spec: ExperimentSpec, provenance: Provenance, folders: Sequence[Path] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield each input on this machine: field, digest now, digest then."""
    named = spec.task
    task = get_task(named.name, scorer=named.scorer, declaration=named.declaration)
    yield "task", task.scorer, provenance.scorer
    splits = [
        ("task.selection", spec.task.selection, provenance.selection_digest),
        ("task.heldout", spec.task.heldout, provenance.heldout_digest),
    ]
    if spec.iterative and spec.iterative.development:
        chosen_on = spec.iterative.development
        splits.append(("iterative.development", chosen_on, provenance.development_digest))
    for field, rows, digest in splits:
        if not is_dataset(rows.source):
            yield field, rows_digest(load_rows(task, rows, field=field, folders=folders)), digest
    model, profile = spec.model.name, spec.method.profile
    if model in bundled_models() or Path(model).expanduser().is_dir():
        yield "model", resolve_checkpoint(model).digest, provenance.model_digest
    if profile is not None and not _DIGEST.fullmatch(profile):
        path = Path(profile).expanduser()
        yield "method.profile", Profile.load(path).digest, provenance.profile_digest
