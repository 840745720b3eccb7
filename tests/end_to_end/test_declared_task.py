"""A task of the user's own through the front door: its file is read once, its text stays."""

import json

import yaml

from modnorm.spec import load_spec
from modnorm.tasks import get_task
from modnorm.tasks.declared_task import carry_declaration

DECLARATION = """
name: sums
max_tokens: 8
columns: [sum, answer]
prompt: {user: "{sum} = "}
answer: answer
extract: {regex: "[0-9]+", match: first}
compare: number
"""


def write(folder):
    """Write a task, rows and a spec that names them by relative paths; returns the spec."""
    (folder / "my-task.yaml").write_text(DECLARATION)
    for name, start in (("selection", 1), ("heldout", 3)):
        rows = [{"sum": f"{n} + 1", "answer": n + 1} for n in range(start, start + 4)]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    spec = {
        "model": "tiny-thicket",
        "task": {
            "name": "my-task.yaml",
            "selection": "selection.jsonl",
            "heldout": "heldout.jsonl",
        },
        "method": {"name": "randopt", "radius": 0.005},
        "population": {"size": 2},
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def test_a_task_file_is_read_once_and_a_run_outlives_it(modnorm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = modnorm("run", write(tmp_path), "--out", "run")
    assert "2 of 4 held-out rows have the prompts of selection rows" in ended.stderr
    document = json.loads((tmp_path / "run" / "results.json").read_text())
    assert document["overlap"] == 2
    task = document["spec"]["task"]
    assert (task["name"], task["declaration"]) == ("sums", DECLARATION)

    changed = DECLARATION.replace("match: first", "match: last")
    (tmp_path / "my-task.yaml").write_text(changed)
    refused = modnorm("run", "spec.yaml", "--out", "run", check=False)
    assert refused.returncode == 2
    assert "task.declaration" in refused.stderr
    assert "the task file has changed since that run" in refused.stderr
    assert "Traceback" not in refused.stderr

    (tmp_path / "my-task.yaml").unlink()
    rescored = json.loads(modnorm("rescore", "run", "--json").stdout)
    assert rescored["old_scorer"] == rescored["new_scorer"] == document["provenance"]["scorer"]
    assert rescored["heldout"]["changed"] == 0
    again = carry_declaration(load_spec(tmp_path / "run" / "spec.json"))
    stored = get_task(again.task.name, declaration=again.task.declaration)
    assert stored.scorer == rescored["old_scorer"]
