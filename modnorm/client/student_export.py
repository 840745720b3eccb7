"""The export of a distillation's student, as a checkpoint or an adapter with a model card."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from modnorm.analysis.distillation import (
    DistillationDocument,
    RoundEntry,
    best_entry,
    start_of_training,
)
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.students import student_name
from modnorm.checkpoint.writing import atomic_directory, require_new
from modnorm.client.calls import describe_student, download_file
from modnorm.client.connection import Connection
from modnorm.client.rundir import state_directory
from modnorm.errors import InvalidInputError, UnavailableError
from modnorm.perturbation.model_card import CARD, student_card

_ADAPTER = "adapter"
_ADAPTER_CONFIG = "adapter_config.json"
_STUDENTS = "students"

CopyStudent = Callable[[str, Path], None]
"""Writes the files of a student, by digest, into an empty directory."""


@dataclass(frozen=True, slots=True)
class ExportedStudent:
    """A written student."""

    round: int
    digest: str


def export_student(  # noqa: PLR0913 - the last two have defaults
    document: DistillationDocument,
    copy: CopyStudent,
    out: Path,
    *,
    base: Checkpoint,
    round_number: int | None = None,
    adapter: bool = False,
) -> ExportedStudent:
    """Write the student of a round into a new directory, with a model card.

    Args:
        document: The distillation.
        copy: Writes the files of a student.
        out: A new directory.
        base: The base model, for the card.
        round_number: The round; None for the best by development rows.
        adapter: Whether to write the LoRA adapter instead of the merged weights.

    Raises:
        InvalidInputError: there is no such round, or its training made no adapter.
        ConflictError: `out` exists.
        UnavailableError: the files have another digest, or writing failed and left nothing behind.
    """
    require_new(out)
    entry = _round(document, round_number)
    digest = entry["student"] or ""
    with atomic_directory(out) as draft:
        copy(digest, draft)
        _check(draft, digest)
        start = start_of_training(document, entry)
        if adapter:
            _keep_adapter(draft)
            _name_base(draft, base, start)
        else:
            shutil.rmtree(draft / _ADAPTER, ignore_errors=True)
        facts = _facts(document, entry)
        card = student_card(
            base, _title(document), facts, adapter=adapter, start=start and start["round"]
        )
        (draft / CARD).write_text(card, encoding="utf-8")
    return ExportedStudent(entry["round"], digest)


def copy_from_directory(run: Path) -> CopyStudent:
    """Return a function that copies students of the lab in a run's directory."""

    def copy(digest: str, target: Path) -> None:
        source = state_directory(run) / _STUDENTS / digest
        if not source.is_dir():
            raise InvalidInputError(
                f"{run} no longer holds student {digest[:12]}",
                field="run",
                remedy="name the directory that `modnorm run` worked in, or an id in a lab",
            )
        for file in sorted(source.rglob("*")):
            if file.is_file():
                place = target / file.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)

    return copy


def copy_from_lab(client: Connection) -> CopyStudent:
    """Return a function that downloads students from a lab."""

    def copy(digest: str, target: Path) -> None:
        for file in client.call(describe_student(digest)).files:
            place = target / file.name
            if not place.resolve().is_relative_to(target.resolve()):
                raise UnavailableError(f"the lab sent a file {file.name!r}")
            place.parent.mkdir(parents=True, exist_ok=True)
            _download(client, digest, place, (file.name, file.sha256))

    return copy


def _download(client: Connection, digest: str, place: Path, file: tuple[str, str]) -> None:
    name, sha256 = file
    content = hashlib.sha256()
    with place.open("wb") as target:
        for chunk in client.stream(download_file(digest, name)):
            content.update(chunk)
            target.write(chunk)
    if content.hexdigest() != sha256:
        raise UnavailableError(f"the lab sent other bytes of {name}")


def _check(directory: Path, digest: str) -> None:
    actual = resolve_checkpoint(str(directory.resolve())).digest
    if actual != digest:
        raise UnavailableError(f"student {digest[:12]} has digest {actual[:12]} here")


def _keep_adapter(directory: Path) -> None:
    """Leave the files of a student's adapter alone in its directory."""
    adapter = directory / _ADAPTER
    if not adapter.is_dir():
        raise InvalidInputError(
            "the training of this student made no adapter",
            field="adapter",
            remedy="export the checkpoint; only distillation.training.method lora has adapters",
        )
    for path in directory.iterdir():
        if path.is_dir() and path != adapter:
            shutil.rmtree(path)
        elif path != adapter:
            path.unlink()
    for path in adapter.iterdir():
        path.rename(directory / path.name)
    adapter.rmdir()


def _name_base(directory: Path, base: Checkpoint, start: RoundEntry | None) -> None:
    """Name the base of an adapter instead of the trainer's directory.

    A student has no public location, so it is named by its digest.
    """
    file = directory / _ADAPTER_CONFIG
    config = json.loads(file.read_text(encoding="utf-8"))
    name = base.location if start is None else student_name(start["student"] or "")
    config |= {"base_model_name_or_path": name, "revision": None if start else base.revision}
    file.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")


def _round(document: DistillationDocument, round_number: int | None) -> RoundEntry:
    if round_number is None:
        return best_entry(document)
    for entry in document["rounds"]:
        if entry["round"] == round_number and entry["student"]:
            return entry
    known = [str(each["round"]) for each in document["rounds"] if each["student"]]
    raise InvalidInputError(
        f"there is no student of round {round_number}",
        field="round",
        remedy=f"name one of {', '.join(known)}",
    )


def _title(document: DistillationDocument) -> str:
    return f"A student of {document['spec'].get('name') or 'a distillation'}"


def _facts(document: DistillationDocument, entry: RoundEntry) -> dict[str, str]:
    """Return the lineage of a student: each search, dataset and student up to its round."""
    facts = {"student": entry["student"] or "", "round": str(entry["round"])}
    for each in document["rounds"][1 : entry["round"] + 1]:
        name, search = f"round {each['round']}", each["search"]
        if search:
            facts[f"{name}: searched around"] = search["model"]
            facts[f"{name}: experts"] = f"{search['ensemble_size']} of {search['population']}"
        start = start_of_training(document, each)
        facts[f"{name}: dataset"] = each["dataset"] or ""
        facts[f"{name}: trained from"] = (
            f"the student of round {start['round']}" if start else "the base model"
        )
        facts[f"{name}: student"] = each["student"] or ""
    for name, result in (("development", entry["development"]), ("heldout", entry["heldout"])):
        metric = result["metric"]
        facts[f"{name} metric"] = "" if metric is None else f"{metric:.4f}"
    return facts
