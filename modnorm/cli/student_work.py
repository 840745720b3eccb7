"""The work of `modnorm export` on distillations: find the student and write it."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from modnorm.analysis.distillation import is_distillation, load_distillation
from modnorm.cli.console import emit_json
from modnorm.cli.options import in_lab, lab_of, refuse_given
from modnorm.prediction.base_model import BasePlace
from modnorm.spec import ModelSpec

if TYPE_CHECKING:
    from modnorm.analysis.distillation import DistillationDocument
    from modnorm.client.student_export import CopyStudent


def write_student(
    run: str,
    server: str | None,
    place: BasePlace,
    out: Path,
    *,
    round_number: int | None,
    adapter: bool,
    others: Mapping[str, object],
    as_json: bool,
) -> bool:
    """Write the student of a distillation; return False if the run is none.

    Without a round the student is the best one. It has none of the `others`, options by name.

    Raises:
        InvalidInputError: one of the `others` is given.
    """
    from modnorm.client.student_export import export_student

    with ExitStack() as stack:
        found = _find(run, server, stack)
        if found is None:
            return False
        refuse_given(others, "a distillation has a student of each round", "give --round instead")
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
