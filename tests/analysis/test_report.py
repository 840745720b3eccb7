from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from modnorm.analysis.document import results_document
from modnorm.analysis.report import render_report
from modnorm.analysis.run_data import CandidateRow, RunData, StateRow
from tests.analysis.run_plots import draw_run
from tests.pages import Page


def render(run: RunData, plots: Mapping[str, bytes] = MappingProxyType({})) -> Page:
    return Page(render_report(results_document(run), plots))


def test_the_headline_figures_are_there(run):
    page = render(run)
    best = next(e for e in run.ensembles if e.place == (48, 10))
    assert "20.0 % base model" in page.words
    assert f"{100 * best.metric:.1f} % vote of 10 from 48" in page.words
    assert f"{best.correct} of 60 held-out rows" in page.words
    for ensemble in run.ensembles:
        assert f"{100 * ensemble.metric:.1f} %" in page.words


def test_the_page_needs_nothing_else(run):
    page = render(run, draw_run(run))
    assert len(page.links) == 4
    assert all(source.startswith("data:image/png;base64,") for source in page.links)
    assert "script" not in page.tags
    assert "link" not in page.tags


def test_what_users_write_is_escaped(run):
    spec = {**run.spec, "name": "<script>alert(1)</script>"}
    page = render(replace(run, spec=spec))
    assert "script" not in page.tags
    assert "<script>alert(1)</script>" in page.words


def test_figures_that_were_not_measured_are_dashes(run):
    bare = replace(run, base=CandidateRow(-1, 0, "scored"), ensembles=[], votes={})
    assert "\u2013 base model" in render(bare).words
    assert "\u2013 base model" in render(replace(run, base=CandidateRow(-1, 0, "scored"))).words


@pytest.fixture
def trained(make_run):
    """A run of an iterative method: its one expert is a state, which has votes of its own."""
    run = make_run(prefixes=(12,), sizes=(1,))
    state = StateRow(
        updates=3, lineage="a" * 64, reported=True, development_answers=8, heldout_answers=60
    )
    return replace(
        run,
        candidates=[replace(each, heldout_answers=0) for each in run.candidates],
        ensembles=[replace(run.ensembles[0], experts=(-1,))],
        states=[replace(state, updates=0, reported=False), state],
    )


def test_a_trained_model_is_no_vote(trained):
    page = render(trained)
    found = trained.ensembles[0]
    headline = f"{100 * found.metric:.1f} % the model after 3 updates: {found.correct} of 60"
    assert headline in page.words
    for word in ("vote", "expert answers right", "K = 1", "N = 12", "Selection rewards by"):
        assert word not in page.words
    assert list(draw_run(trained)) == ["reward-histogram"]


def test_cut_off_answers_of_a_trained_model_are_told_by_its_updates(trained):
    state = replace(trained.states[1], heldout_truncated=45)
    told = "after 3 updates: 75 % of the answers were cut off"
    assert told in render(replace(trained, states=[trained.states[0], state])).words


def test_development_evaluations_have_a_column_where_there_are_any(trained, run):
    searched = sum(each.selection_answers for each in trained.candidates)
    columns = f"development held-out in all the whole run {searched} 16 60 {searched + 76}"
    assert columns in render(trained).words
    assert "search held-out in all" in render(run).words
