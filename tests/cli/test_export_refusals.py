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
