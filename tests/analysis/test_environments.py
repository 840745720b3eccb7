import json
from dataclasses import replace

import pytest

from modnorm.analysis.comparison import compare_runs
from modnorm.analysis.environments import (
    describe_mixed,
    differing_settings,
    environments_of,
    mixed_settings,
)
from modnorm.analysis.export import write_run
from modnorm.analysis.run import load_run

CPU = {"engine": "transformers", "torch": "2.13.0", "device": "cpu", "threads": "1"}
GPU = {"engine": "transformers", "torch": "2.11.0", "device": "H200"}


@pytest.fixture
def answered(run):
    """Place the answers of a run: the base's, then each candidate's, then those of experts."""

    def place(base, *others):
        candidates = [
            replace(candidate, environment=others[candidate.index % len(others)])
            for candidate in run.candidates
        ]
        asked = replace(run.base, environment=base, heldout_environment=base)
        return replace(run, base=asked, candidates=candidates)

    return place


def test_results_do_not_tell_equal_machines_apart(answered, tmp_path):
    for name, environment in (("cpu", CPU), ("gpu", GPU)):
        write_run(tmp_path / name, answered(environment, environment))
    for file in ("results.json", "report.html", "candidates.csv", "votes.parquet"):
        assert (tmp_path / "cpu" / file).read_bytes() == (tmp_path / "gpu" / file).read_bytes()


def test_versions_of_modnorm_are_listed_and_not_compared(answered, tmp_path):
    versions = [{**CPU, "modnorm": version} for version in ("0.1.0", "0.2.0")]
    run = answered(*versions)
    assert environments_of(run) == tuple(versions)
    assert mixed_settings(environments_of(run)) == {}
    assert differing_settings(versions[:1], versions[1:]) == {}
    deviating = answered(*(with_canary(one, one["modnorm"]) for one in versions))
    assert mixed_settings(environments_of(deviating)) == {"canary": ["0.1.0", "0.2.0"]}
    write_run(tmp_path, run)
    timings = json.loads((tmp_path / "timings.json").read_text())
    assert timings["environments"] == versions


@pytest.mark.parametrize("others", [(CPU, GPU), (GPU, CPU), (GPU,)])
def test_what_differs_is_told_in_any_order(answered, others):
    mixed = mixed_settings(environments_of(answered(CPU, *others)))
    assert mixed == {
        "device": ["H200", "cpu"],
        "threads": ["1", "unknown"],
        "torch": ["2.11.0", "2.13.0"],
    }


def test_environments_are_listed_once_and_referred_to(answered, tmp_path):
    run = answered(CPU, GPU, CPU, {})
    write_run(tmp_path, run)
    timings = json.loads((tmp_path / "timings.json").read_text())
    assert timings["environments"] == [CPU, GPU]
    assert timings["base"] == {"environment": 0, "heldout_environment": 0}
    places = [candidate["environment"] for candidate in timings["candidates"]]
    assert places == [(1, 0, None)[index % 3] for index in range(len(run.candidates))]


def test_a_mixed_run_says_so_wherever_it_is_shown(answered, tmp_path):
    write_run(tmp_path / "mixed", answered(CPU, GPU))
    write_run(tmp_path / "alike", answered(CPU, CPU))
    told = "one environment (device H200, cpu; threads 1, unknown; torch 2.11.0, 2.13.0)"
    assert told in (tmp_path / "mixed" / "report.html").read_text()
    assert "one environment" not in (tmp_path / "alike" / "report.html").read_text()
    rows = compare_runs([load_run(tmp_path / name) for name in ("alike", "mixed")])
    assert rows[0]["mixed_environments"] == {}
    assert told in (describe_mixed(rows[1]["mixed_environments"]) or "")


def with_canary(environment, canary, of="request"):
    return {**environment, "canary": canary, "canary_of": of}


def test_a_canary_that_deviates_among_equals_is_told(answered):
    run = answered(with_canary(CPU, "aa"), with_canary(CPU, "aa"), with_canary(CPU, "bb"))
    mixed = mixed_settings(environments_of(run))
    assert mixed == {"canary": ["aa", "bb"]}
    note = describe_mixed(mixed) or ""
    assert "answered the same prompts differently" in note
    assert "aa, bb" in note
    assert "one environment (" not in note


def test_canaries_are_not_compared_between_environments_or_requests(answered):
    others = (with_canary(GPU, "bb"), with_canary(CPU, "cc", "another request"), CPU)
    mixed = mixed_settings(environments_of(answered(with_canary(CPU, "aa"), *others)))
    assert set(mixed) == {"device", "threads", "torch"}
