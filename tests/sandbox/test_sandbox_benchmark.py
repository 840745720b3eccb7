"""The measurement of the sandbox needs something to measure."""

from pathlib import Path

import pytest

from benchmarks.sandbox_speed import main


def test_a_folder_without_rows_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "mbbp")])
    assert ended.value.code == 2
    assert "no rows" in capsys.readouterr().err
