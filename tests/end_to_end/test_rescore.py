"""A finished run scored again: nothing of the run changes, nothing is generated."""

import csv
import json
import shutil

import pytest


@pytest.fixture
def run(finished, tmp_path):
    """A copy of a finished run."""
    return shutil.copytree(finished, tmp_path / "run")


def contents(directory):
    """Return the files of a directory but for the lab's own."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def rewards(directory):
    with (directory / "candidates.csv").open(newline="") as file:
        return [float(line["selection_reward"]) for line in csv.DictReader(file)]


def test_the_same_scorer_gives_the_very_same_figures(modnorm, run):
    before, results = contents(run), json.loads((run / "results.json").read_text())
    ended = modnorm("rescore", run, "--scorer", "gsm8k-v3", "--json")
    document = json.loads(ended.stdout)
    assert document["spec"] == results["spec"]
    assert document["provenance"] == results["provenance"]
    assert document["selection"] == {"total": 5 * 6, "changed": 0}
    assert document["heldout"]["changed"] == 0
    for name in ("selection_reward", "heldout_metric"):
        value = results["base"][name]
        assert document["base"][name] == {"old": value, "new": value}
    assert [each["selection_reward"] for each in document["candidates"]] == [
        {"old": reward, "new": reward} for reward in rewards(run)
    ]
    best = results["experts"][0]
    assert document["rank_1"] == {
        "index": best["index"],
        "metric": {"old": best["heldout_metric"], "new": best["heldout_metric"]},
        "reselected": best["index"],
        "reselected_metric": best["heldout_metric"],
    }
    for old, new in zip(results["ensembles"], document["ensembles"], strict=True):
        assert new["metric"] == {"old": old["metric"], "new": old["metric"]}
        assert new["correct"] == {"old": old["correct"], "new": old["correct"]}
        assert new["experts"] == new["reselected"]["experts"] == old["experts"]
        assert new["reselected"]["metric"] == old["metric"]
    after = contents(run)
    assert json.loads(after.pop("rescored-gsm8k-v3.json")) == document
    assert after == before
