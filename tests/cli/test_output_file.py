"""Output files that would replace a file in use: refused before any work, whatever the command."""

import pytest

ROWS = '{"numbers": [1, 2], "target": 3}\n'


@pytest.fixture
def run(claim, tmp_path):
    return claim(tmp_path / "run")


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(ROWS)
    return path


def commands(run, rows):
    """Return the commands that write one file, with the option that names it."""
    model = ("--model", "tiny-thicket", "--data", rows)
    return {
        ("predict", run, "--input", rows): "out",
        ("export", run, "--manifest"): "out",
        ("calibrate", *model, "--task", "countdown"): "out",
        ("prepare", *model): "out",
    }


@pytest.mark.parametrize("name", ["spec.json", "results.json", "rows/heldout.jsonl"])
def test_no_command_replaces_a_file_of_a_run(refusal, run, rows, name):
    spec = (run / "spec.json").read_bytes()
    for words, option in commands(run, rows).items():
        err = refusal(*words, f"--{option}", run / name)
        assert err.startswith(f"error: {option}: {run / name} is a file of the run in {run} (")
    assert [path.name for path in run.iterdir()] == ["spec.json"]
    assert (run / "spec.json").read_bytes() == spec


def test_no_command_replaces_its_own_input(refusal, run, rows, tmp_path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(rows)
    for words, option in commands(run, rows).items():
        for out in (rows, link) if rows in words else ():
            err = refusal(*words, f"--{option}", out)
            assert err.startswith(f"error: {option}: {out} is an input of this command (")
    assert rows.read_text() == ROWS
