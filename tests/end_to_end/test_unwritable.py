"""Output paths that cannot be written: one exit code in every command that reads or makes runs."""

import pytest

COMMANDS = {
    "run": ("run", "SPEC", "--out"),
    "analyze": ("analyze", "RUN", "--out"),
    "rescore": ("rescore", "RUN", "--scorer", "reference", "--out"),
    "predict": ("predict", "RUN", "--input", "QUESTIONS", "--out"),
    "candidate": ("export", "RUN", "--rank", 1, "--out"),
    "manifest": ("export", "RUN", "--manifest", "--n", 4, "--k", 1, "--out"),
}
"""Commands that write; the path comes last."""


@pytest.fixture
def write(modnorm, finished, write_spec):
    """Run a command of `COMMANDS` with an output path."""
    words = {
        "RUN": finished,
        "QUESTIONS": finished / "rows" / "heldout.jsonl",
        "SPEC": write_spec("unwritable"),
    }
    return lambda name, path: modnorm(
        *(words.get(str(word), word) for word in COMMANDS[name]), path, check=False
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_path_below_a_file_is_the_callers_fault(write, name, tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    ended = write(name, file / "out")
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: ")
    assert str(file) in ended.stderr
    assert "Traceback" not in ended.stderr
    assert file.read_text() == "kept"


@pytest.mark.parametrize("name", ["rescore", "predict", "manifest"])
def test_a_full_disk_is_not_the_callers_fault(write, name):
    ended = write(name, "/dev/full")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: No space left on device")
    assert "Traceback" not in ended.stderr
