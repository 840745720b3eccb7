"""The work of `modnorm export` on distillations: find the student and write it."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from modnorm.analysis.distillation import is_distillation, load_distillation
from modnorm.cli.console import emit_json
from modnorm.cli.options import in_lab, lab_of
from modnorm.prediction.base_model import BasePlace
from modnorm.spec import ModelSpec

if TYPE_CHECKING:
    from modnorm.analysis.distillation import DistillationDocument
    from modnorm.client.student_export import CopyStudent


def write_student(  # noqa: PLR0913 - the options of the command
    run: str,
    server: str | None,
    place: BasePlace,
    out: Path,
    wanted: tuple[int | None, bool],
    *,
    as_json: bool,
) -> bool:
    """Write the student of a distillation; return False if the run is none.

    `wanted` is the round, None for the best, and whether to write the adapter alone.
    """
    from modnorm.client.student_export import export_student

    round_number, adapter = wanted
    with ExitStack() as stack:
        found = _find(run, server, stack)
        if found is None:
            return False
        document, copy = found
        digest = str(document["provenance"]["model_digest"])
        base = place.find(ModelSpec.model_validate(document["spec"]["model"]), digest)
        written = export_student(
            document, copy, out, base=base, round_number=round_number, adapter=adapter
        )
    if as_json:
        emit_json({"directory": str(out), "round": written.round, "student": written.digest})
    else:
        typer.echo(f"round {written.round}  student {written.digest[:16]}  {out}")
    return True


def _find(
    run: str, server: str | None, stack: ExitStack
) -> "tuple[DistillationDocument, CopyStudent] | None":
    """Return a distillation and the access to its students; None for any other run."""
    from modnorm.client.student_export import copy_from_directory, copy_from_lab

    lab = lab_of(run, server)
    if lab is None:
        directory = Path(run)
        if not is_distillation(directory):
            return None
        return load_distillation(directory), copy_from_directory(directory)
    client, experiment = stack.enter_context(in_lab(run, lab))
    if not experiment.spec.HasField("distillation"):
        return None
    from modnorm.client.distillation import distillation_document

    return distillation_document(client, experiment), copy_from_lab(client)
