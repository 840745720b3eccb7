"""Exports of students that fail leave nothing behind."""

from errno import ENOSPC
from pathlib import Path

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client.student_export import export_student
from modnorm.errors import UnavailableError
from tests.analysis.distillations import make_document


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    def copy(digest: str, target: Path) -> None:
        (target / "config.json").write_text("{}")
        raise OSError(ENOSPC, "No space left on device", str(target / "model.safetensors"))

    with pytest.raises(UnavailableError, match="No space left on device") as refused:
        export_student(
            make_document(0.2, [0.6], [0.5]),
            copy,
            tmp_path / "student",
            base=resolve_checkpoint("tiny-thicket"),
        )
    assert refused.value.field == "out"
    assert list(tmp_path.iterdir()) == []
