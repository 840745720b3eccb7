"""`modnorm prepare`, which takes minutes: it tells how far it is, and what a stop loses."""

import json

import pytest

ROW = {"numbers": [3, 5, 7], "target": 15, "solution": "3 + 5 + 7"}


@pytest.fixture
def prepare(modnorm, tmp_path):
    """Prepare on one puzzle; returns exit code, stdout, stderr and the generator's file."""

    def call(*options):
        rows, out = tmp_path / "rows.jsonl", tmp_path / "generator.json"
        rows.write_text(json.dumps(ROW))
        command = ("prepare", "--model", "tiny-thicket", "--data", rows, "--epochs", 2)
        return *modnorm(*command, "--out", out, *options), out

    return call


def test_without_a_terminal_lines_tell_how_far_it_is(prepare):
    code, told, err, out = prepare()
    assert code == 0, err
    lines = err.splitlines()
    assert lines[0] == "tiny-thicket: preparing, 1/2"
    assert lines[1].startswith("tiny-thicket: preparing, 2/2, ")
    assert told.endswith(f"  {out}\n")
    assert out.exists()
