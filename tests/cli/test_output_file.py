"""Output files that would replace a file in use: refused before any work, whatever the command."""

import json

import pytest

ROWS = '{"numbers": [1, 2], "target": 3}\n'


@pytest.fixture
def run(tmp_path):
    """A directory with the first file of a run."""
    path = tmp_path / "run"
    path.mkdir()
    (path / "spec.json").write_text(json.dumps({"name": "searched"}))
    return path


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


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A suite file whose cells have not run; the working directory is its own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "suite.yaml"
    split = {"source": "bundled:countdown-selection", "limit": 4}
    task = {"name": "countdown", "selection": split, "heldout": {**split, "offset": 4}}
    base = {
        "model": "tiny-thicket",
        "task": task,
        "method": {"name": "randopt", "radius": 0.01},
        "population": {"size": 2, "ensemble_sizes": [1]},
    }
    content = {"name": "few", "title": "Few", "seeds": [1], "base": base, "axes": {}}
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("name", ["spec.json", "results.json", "rows/heldout.jsonl"])
def test_no_command_replaces_a_file_of_a_run(refusal, run, rows, name):
    for words, option in commands(run, rows).items():
        err = refusal(*words, f"--{option}", run / name)
        assert err == (
            f"error: {option}: {run / name} is a file of the run in {run} (name another file, or "
            "one outside the run's directory)\n"
        )
    assert [path.name for path in run.iterdir()] == ["spec.json"]
    assert json.loads((run / "spec.json").read_text()) == {"name": "searched"}


def test_a_suite_does_not_run_inside_the_directory_of_a_run(refusal, run, suite):
    err = refusal("suite", "run", suite, "--out", run)
    assert err.startswith(f"error: out: {run} holds the run of a single spec (")
    assert [path.name for path in run.iterdir()] == ["spec.json"]


def test_no_command_replaces_its_own_input(refusal, run, rows, tmp_path):
    link = tmp_path / "link.jsonl"
    link.symlink_to(rows)
    for words, option in commands(run, rows).items():
        for out in (rows, link) if rows in words else ():
            err = refusal(*words, f"--{option}", out)
            assert err == (
                f"error: {option}: {out} is an input of this command (name another file)\n"
            )
    assert rows.read_text() == ROWS
