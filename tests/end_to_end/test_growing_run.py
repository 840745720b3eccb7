"""A run that grows evaluates only what is new, in its directory and in another one."""

import json

import pytest

METHOD = {"name": "randopt", "sigma": 0.02}
SIZES = {"ensemble_sizes": [1, 2]}


def evaluated(directory):
    """Return how many evaluations the lab of a directory was reported, by split."""
    lines = (directory / "state" / "lab.log").read_text().splitlines()
    splits = [json.loads(line)["split"] for line in lines if '"event": "reported"' in line]
    return splits.count("selection"), splits.count("heldout")


@pytest.fixture
def run(modnorm, write_spec, tmp_path):
    def run(out, population, *, name="growing", reuse=True):
        before = evaluated(tmp_path / out) if (tmp_path / out).exists() else (0, 0)
        population = {**SIZES, **population}
        changes = {"method": METHOD, "population": population, "reuse": reuse}
        spec = write_spec(name, task__max_tokens=8, **changes)
        cache = tmp_path / "cache"
        modnorm("run", spec, "--out", tmp_path / out, "-q", MODNORM_CACHE_DIR=str(cache))
        after = evaluated(tmp_path / out)
        return after[0] - before[0], after[1] - before[1]

    return run


def test_only_new_evaluations_are_made_and_the_results_are_those_of_a_whole_run(
    run, results, tmp_path
):
    assert run("a", {"size": 2})[0] == 3
    assert run("a", {"size": 4})[0] == 2
    assert run("b", {"size": 4, "ensemble_sizes": [1, 3]}, name="other")[0] == 0
    assert run("whole", {"size": 4}, reuse=False)[0] == 5
    grown, whole = results(tmp_path / "a"), results(tmp_path / "whole")
    documents = [json.loads(files.pop("results.json")) for files in (grown, whole)]
    assert documents[1]["spec"].pop("reuse") is False
    for document in documents:
        document["provenance"].pop("spec_digest", None)
    assert grown == whole
    assert documents[0] == documents[1]
