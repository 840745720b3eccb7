"""Bad input through the front door; tests/services/aggregator/api has every kind of it."""

import json


def test_a_run_that_the_lab_alone_can_refuse_leaves_nothing(modnorm, write_spec, tmp_path):
    out = tmp_path / "out"
    spec = write_spec("long", task__max_tokens=2040)  # more than the model has positions
    ended = modnorm("run", spec, "--out", out, "--json", check=False)
    assert ended.returncode == 2
    assert json.loads(ended.stderr.splitlines()[-1])["field"] == "task.selection"
    assert not out.exists()
