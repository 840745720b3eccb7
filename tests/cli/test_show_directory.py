"""`modnorm show` of directories, and ids that are none."""

import json

import pytest

from tests.analysis.distillations import make_document
from tests.small_results import small_results


@pytest.fixture
def finish(claim, spec):
    """Make the directory of a finished run, without its further files."""
    results = json.dumps(small_results(spec.model_dump(mode="json")))
    return lambda path: (claim(path) / "results.json").write_text(results)


def test_a_finished_run_is_shown_with_its_results(printed, modnorm_json, finish, tmp_path):
    finish(tmp_path / "run")
    out = printed("show", tmp_path / "run")
    assert f"{tmp_path / 'run'}  finished" in out
    assert "95 % Wilson" in out
    assert "75.0 %" in out
    assert modnorm_json("show", tmp_path / "run")["base"]["heldout_metric"] == 0.5


def test_the_runs_inside_a_directory_are_shown_one_after_another(
    printed, modnorm_json, finish, claim, tmp_path
):
    finish(tmp_path / "a")
    claim(tmp_path / "b")
    finish(tmp_path / "c")
    (tmp_path / "c" / "spec.json").unlink()
    out = printed("show", tmp_path)
    assert f"{tmp_path / 'b'}  no results" in out
    assert str(tmp_path / "c") not in out
    assert len(modnorm_json("show", tmp_path)) == 1


def test_distillations_and_predictions_inside_a_directory_are_finished(
    printed, modnorm_json, claim, tmp_path
):
    document = make_document(0.25, [0.5], [0.45])
    (claim(tmp_path / "distilled") / "distillation.json").write_text(json.dumps(document))
    predictions = claim(tmp_path / "predicted") / "predictions.jsonl"
    predictions.write_text("{}\n")
    out = printed("show", tmp_path)
    assert "no results" not in out
    assert f"{tmp_path / 'distilled'}  finished" in out
    assert "vote of 10" in out
    assert f"{tmp_path / 'predicted'}  finished\n{predictions}\n" in out
    assert [each["schema"] for each in modnorm_json("show", tmp_path)] == [document["schema"]]


def test_one_run_without_results_is_refused(refusal, claim, tmp_path):
    claim(tmp_path / "run")
    for options in ((), ("--json",)):
        assert "only an experiment that succeeded has results" in refusal(
            "show", tmp_path / "run", *options
        )


def test_a_damaged_run_hides_no_other(modnorm, refusal, modnorm_json, finish, tmp_path):
    for name in "abc":
        finish(tmp_path / name)
    damaged = tmp_path / "b"
    (damaged / "results.json").write_text("{")
    code, out, err = modnorm("show", tmp_path)
    assert (code, out.count("75.0 %"), str(damaged) in out) == (0, 2, False)
    assert err.startswith(f"note: {damaged} is left out: cannot read {damaged}/results.json: ")
    assert len(modnorm_json("show", tmp_path)) == 2
    err = refusal("show", damaged)
    assert err.startswith("error: directory: cannot read ")
    assert "(copy the whole directory; " in err


def test_a_path_is_no_id(modnorm, refusal, tmp_path):
    err = refusal("watch", tmp_path)
    assert f"error: id: {tmp_path} is a directory" in err
    assert f"{tmp_path / 'no'} does not exist" in modnorm("cancel", tmp_path / "no")[2]


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("command", ["show", "candidates"])
def test_only_the_id_of_an_experiment_asks_a_lab(command, modnorm, refusal, tmp_path, monkeypatch):
    monkeypatch.setenv("MODNORM_SERVER", f"unix:{tmp_path}/nobody.sock")
    assert "error: run: first-run does not exist (" in refusal(command, "first-run")
    code, _, err = modnorm(command, "4be12f0c-97cb-5a1e-8bd8-0e0d27f3bd2a")
    assert code == 1
    assert "nobody.sock" in err


def test_a_folder_of_folders_with_runs_names_them(refusal, finish, tmp_path):
    finish(tmp_path / "runs" / "demo" / "first")
    for command in (("show",), ("view", "--port", "0"), ("analyze", "--out", tmp_path / "out")):
        err = refusal(command[0], tmp_path / "runs", *command[1:])
        assert f"(name a folder with runs: {tmp_path / 'runs' / 'demo'})" in err
