from dataclasses import replace

import pytest

from modnorm.analysis.comparison import compare_runs
from modnorm.analysis.document import (
    SCHEMA,
    describe_lost_search,
    describe_overlap,
    describe_truncated,
    results_document,
)
from modnorm.analysis.export import write_run
from modnorm.analysis.report import report_parts
from modnorm.analysis.run import load_run
from modnorm.analysis.run_data import StateRow
from modnorm.analysis.uncertainty import accuracy_interval


def test_the_document_holds_every_ensemble_with_its_agreement(run):
    document = results_document(run)
    assert document["schema"] == SCHEMA
    sizes = [(e["population"], e["ensemble_size"]) for e in document["ensembles"]]
    assert sizes == [(n, k) for n in (12, 24, 48) for k in (1, 5, 10)]
    for ensemble in document["ensembles"]:
        assert ensemble["metric"] == ensemble["correct"] / ensemble["rows"]
        assert ensemble["agreement"] is not None
    assert [s["population"] for s in document["statistics"]] == [12, 24, 48]


def test_experts_are_listed_best_first_with_their_own_accuracy(run):
    experts = results_document(run)["experts"]
    assert experts[0]["rank"] == 1
    ranks = [e["rank"] for e in experts if e["rank"] is not None]
    assert len(ranks) == len(experts)
    assert ranks == sorted(ranks)
    chosen = {index for ensemble in run.ensembles for index in ensemble.experts}
    assert {e["index"] for e in experts} == chosen
    best = next(e for e in run.ensembles if e.place == (48, 1))
    assert experts[0]["heldout_metric"] == best.metric


def test_failed_candidates_are_told(make_run):
    document = results_document(make_run(prefixes=(20,), failed=frozenset({3, 7})))
    assert document["candidates"] == {"total": 20, "scored": 18, "failed": [3, 7]}


def test_held_out_rows_that_select_are_told_wherever_the_run_is_shown(make_run, tmp_path):
    for name, count in (("sound", 0), ("leaky", 2)):
        write_run(tmp_path / name, replace(make_run(), overlap=count))
    runs = [load_run(tmp_path / name) for name in ("sound", "leaky")]
    told = [describe_overlap(run.document) for run in runs]
    rows = runs[0].document["data"]["heldout"]["rows"]
    sentence = (
        f"2 of {rows} held-out rows have the prompts of selection rows: they do not test the "
        "selection."
    )
    assert told == [None, sentence]
    assert [row["overlap"] for row in compare_runs(runs)] == told
    assert sentence in (tmp_path / "leaky" / "report.html").read_text()
    assert "prompts of selection rows" not in (tmp_path / "sound" / "report.html").read_text()


@pytest.mark.parametrize(
    ("selection", "heldout", "told"),
    [
        ((30, 20), (45, 30), None),
        (
            (30, 36),
            (45, 30),
            "selection: 90 % of the answers were cut off at 512 tokens (raise max_tokens).",
        ),
        (
            (30, 0),
            (45, 45),
            "N=12 K=1: 75 % of the answers were cut off at 512 tokens (raise max_tokens).",
        ),
    ],
)
def test_answers_without_a_vote_and_those_cut_off_are_counted(run, selection, heldout, told):
    """Each candidate has 40 selection answers, each expert 60 held-out answers."""

    def counted(model):
        held = heldout if model.heldout_answers else (0, 0)
        return replace(
            model,
            selection_valid=selection[0],
            selection_truncated=selection[1],
            heldout_valid=held[0],
            heldout_truncated=held[1],
        )

    run = replace(
        run,
        candidates=[counted(each) for each in run.candidates],
        base=counted(run.base),
        provenance={**run.provenance, "max_tokens": 512},
    )
    document = results_document(run)
    searched = {"valid": selection[0] / 40, "truncated": selection[1] / 40}
    voted = {"valid": heldout[0] / 60, "truncated": heldout[1] / 60}
    assert document["selection_shares"] == {"answers": 40 * 48, **searched}
    assert document["base"]["selection_shares"] == {"answers": 40, **searched}
    for ensemble in document["ensembles"]:
        assert ensemble["shares"] == {"answers": 60 * ensemble["ensemble_size"], **voted}
    for expert in document["experts"]:
        assert expert["heldout_shares"] == {"answers": 60, **voted}
    assert describe_truncated(document) == told
    assert report_parts(document)["truncated"] == told


def test_a_balanced_accuracy_has_no_interval_even_if_it_could_be_a_share_of_the_rows(run):
    unequal = [replace(each, metric=0.25, correct=7) for each in run.ensembles]
    document = results_document(replace(run, ensembles=unequal))
    assert document["base"]["heldout_interval"] is None
    assert all(expert["heldout_interval"] is None for expert in document["experts"])
    assert all(ensemble["interval"] is None for ensemble in document["ensembles"])
    assert results_document(run)["base"]["heldout_interval"] is not None


def test_a_search_without_a_better_candidate_is_told(run):
    document = results_document(run)
    assert describe_lost_search(document) is None
    assert report_parts(document)["lost"] is None
    document["base"]["selection_reward"] = document["experts"][0]["selection_reward"]
    told = describe_lost_search(document)
    assert told is not None
    assert "the radius may be too large or too small" in told.lower()
    assert report_parts(document)["lost"] == told


def test_a_base_that_is_always_right_does_not_question_the_radius(run):
    document = results_document(run)
    document["base"]["selection_reward"] = document["base"]["selection_accuracy"] = 1.0
    told = describe_lost_search(document)
    assert told is not None
    assert "radius" not in told.lower()


def test_a_state_whose_metric_is_no_share_of_rows_has_no_interval(make_run):
    run = make_run(prefixes=(12,), sizes=(1,))
    state = StateRow(3, "a" * 64, reported=True, heldout_metric=0.5, heldout_answers=60)
    accurate = replace(run.ensembles[0], metric=0.5, correct=30)
    balanced = replace(accurate, correct=20)
    intervals = []
    for ensemble in (accurate, balanced):
        entry = results_document(replace(run, ensembles=[ensemble], states=[state]))["iterative"]
        assert entry is not None
        intervals += [each["heldout_interval"] for each in entry["states"]]
    assert intervals == [accuracy_interval(0.5, 60), None]


def test_the_ledger_of_an_iterative_run_counts_each_purpose_separately(make_run):
    run = make_run(prefixes=(12,), sizes=(1,))
    answered = replace(run.candidates[0], selection_answers=200, selection_tokens=9)
    candidates = [replace(answered, index=index) for index in range(6)]
    candidates.append(
        replace(answered, index=6, attempts=3, selection_answers=0, selection_tokens=0)
    )
    first = StateRow(
        0, "a" * 64, reported=False, development_answers=500, development_tokens=7,
        development_attempts=1, heldout_answers=1500, heldout_tokens=7, heldout_attempts=1,
    )  # fmt: skip
    states = [first, replace(first, updates=1, reported=True, development_answers=0)]
    ensemble = replace(run.ensembles[0], experts=(-2,))
    trained = replace(run, candidates=candidates, ensembles=[ensemble], states=states)
    entry = results_document(trained)["iterative"]
    assert entry is not None
    assert {name: tuple(counts.values()) for name, counts in entry["ledger"].items()} == {
        "search": (9, 6, 1200, 54),
        "development": (1, 1, 500, 7),
        "monitoring": (1, 1, 1500, 7),
        "final": (1, 1, 1500, 7),
    }
    assert entry["main_run"] == 1200 + 500 + 1500
