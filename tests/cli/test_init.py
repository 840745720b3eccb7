"""`modnorm init`, `validate` and `plan`."""

import json

import pytest

from modnorm.perturbation.methods import METHODS
from modnorm.spec import load_spec
from modnorm.tasks.registry import task_names
from tests.small_results import small_results


def test_init_writes_a_spec_that_is_valid(modnorm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = modnorm("init", "mine.yaml")
    assert (code, out) == (0, "mine.yaml is written; next: modnorm run mine.yaml\n")
    assert modnorm("validate", "mine.yaml") == (0, "mine.yaml: valid\n", "")
    text = (tmp_path / "mine.yaml").read_text()
    assert "modnorm run mine.yaml" in text
    assert "runs/mine\n" in text
    assert load_spec("mine.yaml").method.name == "modular_norm"


def test_init_overwrites_nothing(modnorm, tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text("mine")
    code, out, err = modnorm("init", file)
    assert (code, out) == (2, "")
    assert err == f"error: file: {file} exists (name a new file, or remove this one)\n"
    assert file.read_text() == "mine"
    for place in (tmp_path / "no" / "spec.yaml", file / "spec.yaml"):
        assert modnorm("init", place)[2].startswith(f"error: file: cannot write {place}: No")


def test_validate_checks_every_file(modnorm, spec_file, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(spec_file.read_text().replace("size: 12", "size: 11"))
    code, out, err = modnorm("validate", bad, spec_file)
    assert code == 2
    assert out == f"{spec_file}: valid\n"
    assert err.startswith(f"error: {bad}:39: population.prefixes: ")


def test_validate_counts_rows_that_occur_twice(modnorm, modnorm_json, spec_file):
    assert modnorm_json("validate", spec_file)[0]["remarks"] == []
    heldout = '"bundled:countdown-heldout", limit: 50'
    shared = '"bundled:countdown-selection", offset: 60, limit: 10'
    spec_file.write_text(spec_file.read_text().replace(heldout, shared))
    told = "note: 4 of 10 held-out rows have the prompts of selection rows\n"
    assert modnorm("validate", spec_file) == (0, f"{spec_file}: valid\n", told)


def test_validate_states_what_only_a_run_can_check(printed, modnorm_json, spec_file, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("modnorm.checkpoint.hub.check_repository", lambda *_: None)
    text = spec_file.read_text().replace("model: tiny-thicket", "model: owner/model", 1)
    rows = '"bundled:countdown-heldout", limit: 50'
    spec_file.write_text(text.replace(rows, "owner/rows, split: test, limit: 50"))
    out = printed("validate", spec_file)
    assert out.endswith(
        "not on this machine, so the run downloads and checks: "
        "model (owner/model), task.heldout (owner/rows)\n"
    )
    entry = modnorm_json("validate", spec_file)[0]
    assert entry["valid"]
    assert entry["remarks"] == []


def test_plan_counts_jobs_tokens_and_hours(modnorm, modnorm_json, spec_file):
    estimate = modnorm_json("plan", spec_file)
    # 12 candidates and the base on 64 rows; 5 experts of each prefix and the base on 50.
    assert estimate["evaluations"] == 13 * 64 + 11 * 50
    assert estimate["jobs"] == 13 + 11
    assert estimate["tokens"] == 128 * estimate["evaluations"]
    assert 0 < estimate["hours"] < 1
    assert "jobs, at most         24\n" in modnorm("plan", spec_file)[1]


def test_plan_counts_the_updates_of_an_iterative_method(modnorm_json):
    estimate = modnorm_json("plan", "examples/demo-es.yaml")
    # 12 updates of 8 candidates on 64 rows; 5 states and the base on 200, the base on 64.
    assert estimate["candidates"] == 96
    assert estimate["jobs"] == 96 + 5 + 2
    assert estimate["evaluations"] == 96 * 64 + 5 * 200 + 264


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("absent.jsonl", "task.heldout.source: there is no file absent.jsonl"),
        (
            "{source: owner/rows, split: test}",
            "task.heldout.limit: the number of rows of owner/rows is not known on this machine",
        ),
        (
            "{source: 'bundled:countdown-heldout', offset: 1000}",
            "task.heldout: bundled:countdown-heldout has no rows after the first 1000",
        ),
    ],
)
def test_plan_names_the_fault_of_rows_that_it_cannot_count(refusal, spec_file, rows, fault):
    given = '{source: "bundled:countdown-heldout", limit: 50}'
    text = spec_file.read_text()
    assert given in text
    spec_file.write_text(text.replace(given, rows))
    assert fault in refusal("plan", spec_file)


def test_plan_takes_the_speed_of_a_finished_run(modnorm, modnorm_json, spec_file, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    times = [{"index": index, "seconds": 8.0, "heldout_seconds": 0.0} for index in range(2)]
    timings = {"candidates": times}
    assert modnorm("plan", spec_file, "--like", run)[0] == 2  # it has no results
    sections = {name: {"name": name} for name in ("model", "task", "method")}
    results = small_results({"name": "n", "population": {}, **sections})
    (run / "timings.json").write_text(json.dumps(timings))
    (run / "results.json").write_text(json.dumps(results))
    estimate = modnorm_json("plan", spec_file, "--like", run)
    # Both prefixes have an expert of 5 in common in 2.5 places, as far as can be expected.
    expected = estimate["evaluations"] - 2.5 * 50
    assert estimate["hours"] == expected * 2.0 / 3600
    assert estimate["basis"] == str(run)
    _, _, err = modnorm("plan", spec_file, "--like", run)
    assert err.startswith(f"note: {run} is a run of model on task: ")
    spec = load_spec(spec_file).model_dump(mode="json")
    (run / "results.json").write_text(json.dumps(small_results(spec)))
    assert modnorm("plan", spec_file, "--like", run)[2] == ""


def test_tasks_and_methods_are_those_of_the_registries(modnorm, modnorm_json):
    listed = modnorm_json("tasks")
    assert [each["name"] for each in listed] == list(task_names())
    assert all(each["scorers"] and each["summary"] for each in listed)
    assert {each["name"]: each["needs_profile"] for each in modnorm_json("methods")} == {
        name: method.needs_profile for name, method in METHODS.items()
    }
    assert {each["name"] for each in modnorm_json("methods") if each["low_rank"]} == {
        name for name, method in METHODS.items() if method.low_rank
    }
    assert modnorm("methods")[1].count("\n") == len(METHODS)
    printed = modnorm("tasks")[1]
    assert "scorers: gsm8k-v3" in printed
    assert "rows have `title`, `shuffled_sentences`, `gold_order`" in printed
    assert "rows have `question`, `final_answer`, `is_multiple_answer`" in printed
