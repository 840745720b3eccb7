"""The benchmark of the sandbox."""

from pathlib import Path

import pytest

from benchmarks.sandbox_speed import main


def test_a_folder_without_rows_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "mbbp")])
    assert ended.value.code == 2
    assert "no rows" in capsys.readouterr().err
