"""A short run of the fuzzer, against Postgres as labs have it; the long one is a benchmark."""

from modnorm.services.common.access import ALLOWED
from verification.fuzz.fuzzer import fuzz
from verification.fuzz.stored import unasked
from verification.labs.secured_lab import secured_lab

REQUESTS = 500


def test_no_request_leads_to_a_defect(tmp_path, postgres_url, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with secured_lab(tmp_path, database_url=postgres_url) as lab:
        figures = fuzz(lab, REQUESTS, seed=5)
    assert figures.faults == []
    assert set(figures.rpcs) >= set(ALLOWED)
    assert {kind for kind, _ in figures.codes} >= {"good", "forged", "of another tenant"}


def test_unexplained_changes_are_detected():
    before = {"experiments": ["a"], "reports": [], "jobs": ["j"]}
    after = {"experiments": ["a", "b"], "reports": ["x"], "jobs": ["k"]}
    assert len(list(unasked(before, after, {}))) == 5
    assert not list(unasked(before, after, {"CreateExperiment": 1, "ReportJob": 1}))
    assert list(unasked(before, after, {"CreateExperiment": 1})) == ["1 reports were stored"]
    assert not list(unasked(before, before, {}))
