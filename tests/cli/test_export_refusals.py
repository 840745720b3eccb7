"""Exports of a run directory that are refused before any work."""

import json

import pytest

from modnorm.spec import parse_spec


@pytest.fixture
def run_of(spec, tmp_path):
    """Make the directory of a run, with the state of its lab or without."""

    def make(method, *, state=True):
        content = spec.model_dump(mode="json", exclude={"method", "population"})
        named = parse_spec({**content, **method})
        path = tmp_path / "run"
        (path / "state" if state else path).mkdir(parents=True)
        (path / "spec.json").write_text(json.dumps(named.model_dump(mode="json")))
        if state:
            (path / "state" / "modnorm.db").touch()
        return path

    return make


SEARCH = {"method": {"name": "randopt", "sigma": 0.01}, "population": {"size": 2}}


def test_a_trained_model_has_no_rank(run_of, refusal, tmp_path):
    out = tmp_path / "out"
    err = refusal("export", run_of({"method": "es"}), "--rank", 1, "--out", out)
    assert err.startswith("error: rank: ")
    assert not out.exists()


def test_of_a_search_a_rank_is_asked_for(run_of, refusal, tmp_path):
    err = refusal("export", run_of(SEARCH), "--out", tmp_path / "out")
    assert "--rank 1" in err


def test_without_the_state_of_the_lab_there_are_no_descriptors(run_of, refusal, tmp_path):
    path = run_of(SEARCH, state=False)
    err = refusal("export", path, "--rank", 1, "--out", tmp_path / "out")
    assert err.startswith("error: run: ")
    assert "with --server" in err


@pytest.mark.parametrize(("option", "value"), [("n", 2), ("k", 1)])
def test_an_ensemble_is_named_for_manifests_and_adapters_only(
    run_of, refusal, tmp_path, option, value
):
    words = ("export", run_of(SEARCH), "--rank", 1, f"--{option}", value)
    err = refusal(*words, "--out", tmp_path / "out")
    assert err.startswith(f"error: {option}: ")
    assert "--manifest" in err
