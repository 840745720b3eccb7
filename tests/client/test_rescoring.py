import csv

import pytest

from modnorm.analysis.run import load_run
from modnorm.client.rescoring import Judged, rescore_run
from modnorm.errors import PreconditionError
from modnorm.search.rescored_votes import OldAndNew, Reselection
from modnorm.tasks import get_task
from tests.faults import error_at


@pytest.fixture
def run(gsm8k_stored):
    return load_run(gsm8k_stored)


@pytest.fixture
def reference(run):
    return rescore_run(run, get_task("gsm8k", scorer="reference"))


def test_the_same_scorer_changes_nothing(run):
    found = rescore_run(run, get_task("gsm8k"))
    assert (found.old_scorer, found.new_scorer) == ("gsm8k-v3", "gsm8k-v3")
    assert (found.selection, found.heldout) == (Judged(8, 0), Judged(6, 0))
    for model in (found.base, *found.candidates):
        assert model.selection_reward.new == model.selection_reward.old
        assert model.heldout_metric.new == model.heldout_metric.old
    for ensemble in found.ensembles:
        assert ensemble.metric == OldAndNew(1.0, 1.0)
        assert ensemble.correct == OldAndNew(2, 2)
        assert ensemble.reselected == Reselection(ensemble.experts, (), 1.0, 2)
    assert found.rank_1.reselected == found.rank_1.index


@pytest.mark.parametrize(
    "left_out",
    [
        {"state": "stopped", "selection_reward": "", "reward_lower": "0", "reward_upper": "0.4"},
        {"heldout_metric": ""},
    ],
)
def test_what_was_left_out_cannot_be_scored_again(gsm8k_stored, left_out):
    path = gsm8k_stored / "candidates.csv"
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    lines[1].update(left_out)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    with pytest.raises(PreconditionError) as raised:
        rescore_run(load_run(gsm8k_stored), get_task("gsm8k"))
    assert raised.value.field == "population.statistics"


def test_another_scorer_judges_every_completion_anew(reference):
    assert (reference.old_scorer, reference.new_scorer) == ("gsm8k-v3", "gsm8k-reference-v1")
    assert (reference.selection, reference.heldout) == (Judged(8, 2), Judged(6, 1))
    assert [model.selection_reward.new for model in reference.candidates] == [0.0, 0.5, 0.5, None]
    assert [model.heldout_metric.new for model in reference.candidates] == [0.5, 0.5, None, None]
    assert reference.base.heldout_metric == OldAndNew(0.5, 0.5)
    assert [model.changed_selection for model in reference.candidates] == [2, 0, 0, 0]
    assert [model.changed_heldout for model in reference.candidates] == [1, 0, 0, 0]


def test_experts_vote_as_selected_and_as_selected_anew(reference):
    assert [(e.population, e.ensemble_size) for e in reference.ensembles] == [
        (2, 1),
        (2, 2),
        (4, 1),
        (4, 2),
    ]
    assert {e.metric for e in reference.ensembles} == {OldAndNew(1.0, 0.5)}
    assert [e.reselected.experts for e in reference.ensembles] == [(1,), (1, 0), (1,), (1, 2)]
    assert [e.reselected.metric for e in reference.ensembles] == [0.5, 0.5, 0.5, None]
    assert [e.reselected.missing for e in reference.ensembles] == [(), (), (), (2,)]
    assert (reference.rank_1.index, reference.rank_1.reselected) == (0, 1)


def test_rows_of_another_task_are_refused(run):
    with error_at("task.name", "'numbers'"):
        rescore_run(run, get_task("countdown"))
