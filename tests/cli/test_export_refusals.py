"""Exports of a finished run that are refused before any work."""

import json
from dataclasses import replace

import pytest

from modnorm.analysis.export import write_run
from modnorm.spec import parse_spec


@pytest.fixture
def run_of(spec, make_run, tmp_path):
    """Make the directory of a finished run of another method."""

    def make(method):
        content = spec.model_dump(mode="json", exclude={"method", "population"})
        named = parse_spec({**content, **method}).model_dump(mode="json")
        write_run(tmp_path / "run", replace(make_run(), spec=named))
        (tmp_path / "run" / "spec.json").write_text(json.dumps(named))
        return tmp_path / "run"

    return make


SEARCH = {"method": {"name": "randopt", "sigma": 0.01}, "population": {"size": 2}}


def test_a_trained_model_has_no_rank(run_of, refusal, tmp_path):
    out = tmp_path / "out"
    err = refusal("export", run_of({"method": "es"}), "--rank", 1, "--out", out)
    assert err.startswith("error: rank: ")
    assert not out.exists()


def test_of_a_search_a_rank_is_asked_for(run_of, refusal, tmp_path):
    assert "--rank 1" in refusal("export", run_of(SEARCH), "--out", tmp_path / "out")
