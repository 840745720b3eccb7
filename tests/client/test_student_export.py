"""Exports of students: what they hold, and what failed ones leave behind."""

import json
import shutil
from errno import ENOSPC
from pathlib import Path

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client.student_export import export_student
from modnorm.errors import UnavailableError
from tests.analysis.distillations import make_document
from tests.faults import error_at

BASE = resolve_checkpoint("tiny-thicket")


def copy_with_adapter(digest: str, target: Path) -> None:
    """Write a student as a trainer does: the adapter's base is a directory of its machine."""
    assert digest == BASE.digest
    shutil.copytree(BASE.directory, target, dirs_exist_ok=True)
    adapter = target / "adapter"
    adapter.mkdir()
    config = {"base_model_name_or_path": "/cache/of/the/trainer", "r": 4, "revision": None}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "README.md").write_text("a card with /cache/of/the/trainer")


def two_rounds(**distillation):
    document = make_document(0.2, [0.6, 0.7], [0.5, 0.6])
    document["spec"] = {**document["spec"], "distillation": distillation}
    for entry in document["rounds"][1:]:
        entry["student"] = BASE.digest
    return document


def test_a_checkpoint_is_written_without_its_adapter(tmp_path):
    out = tmp_path / "student"
    export_student(two_rounds(), copy_with_adapter, out, base=BASE)
    assert not (out / "adapter").exists()
    assert resolve_checkpoint(str(out)).digest == BASE.digest


def test_an_adapter_names_the_base(tmp_path):
    out = tmp_path / "adapter"
    document = two_rounds(train_from="base")
    export_student(document, copy_with_adapter, out, base=BASE, round_number=2, adapter=True)
    config = json.loads((out / "adapter_config.json").read_text())
    assert config == {"base_model_name_or_path": BASE.location, "r": 4, "revision": None}
    card = (out / "README.md").read_text()
    assert BASE.location in card
    assert "| round 2: trained from | the base model |" in card


def test_an_adapter_on_a_student_names_that_student(tmp_path):
    """Its weights added to those of the base would be another model."""
    out = tmp_path / "adapter"
    document = two_rounds(train_from="student")
    export_student(document, copy_with_adapter, out, base=BASE, round_number=2, adapter=True)
    config = json.loads((out / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == f"student:{BASE.digest}"
    card = (out / "README.md").read_text()
    assert "The adapter adds to the student of round 1, not to the base model." in card
    assert "| round 1: trained from | the base model |" in card
    assert "| round 2: trained from | the student of round 1 |" in card
    assert "/cache/of/the/trainer" not in card


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    def copy(digest: str, target: Path) -> None:
        (target / "config.json").write_text("{}")
        raise OSError(ENOSPC, "No space left on device", str(target / "model.safetensors"))

    with error_at("out", "No space left on device", kind=UnavailableError):
        export_student(make_document(0.2, [0.6], [0.5]), copy, tmp_path / "student", base=BASE)
    assert list(tmp_path.iterdir()) == []
