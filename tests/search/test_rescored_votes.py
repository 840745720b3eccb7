from dataclasses import dataclass

import pytest

from modnorm.search.rescored_votes import (
    OldAndNew,
    RescoredModel,
    Reselection,
    rescored_ensembles,
    rescored_rank_one,
)
from modnorm.search.voting import Ballot
from modnorm.tasks import get_task

TASK = get_task("gsm8k")
ROWS = [TASK.parse({"question": "q", "answer": "1"})] * 2
UNKNOWN = OldAndNew(None, None)


@dataclass(frozen=True)
class Voted:
    population: int
    ensemble_size: int
    experts: tuple[int, ...]
    metric: float = 0.25
    correct: int = 7


def model(index, old, new, heldout=UNKNOWN):
    return RescoredModel(
        index, OldAndNew(old, new), heldout, changed_selection=0, changed_heldout=0
    )


def ballot(*correct):
    votes = tuple("1" if hit else "2" for hit in correct)
    return Ballot(votes, correct, (False,) * len(votes))


def vote(ensembles, models, ballots):
    return rescored_ensembles(ensembles, models, ballots, TASK, ROWS)


def test_the_selected_experts_vote_by_the_new_scorer_beside_the_old_figures():
    models = [model(0, 0.2, 0.2), model(1, 0.9, 0.9)]
    (ensemble,) = vote([Voted(2, 1, (1,))], models, {1: ballot(True, False)})
    assert ensemble.experts == (1,)
    assert ensemble.metric == OldAndNew(0.25, 0.5)
    assert ensemble.correct == OldAndNew(7, 1)


def test_a_new_ranking_selects_new_experts_of_each_prefix():
    models = [model(0, 0.9, 0.1), model(1, 0.2, 0.5), model(2, 0.1, 0.7)]
    ballots = {0: ballot(False, False), 1: ballot(True, False), 2: ballot(True, True)}
    ensembles = [Voted(3, 1, (0,)), Voted(2, 1, (0,))]
    two, three = vote(ensembles, models, ballots)
    assert (two.population, three.population) == (2, 3)
    assert two.reselected == Reselection((1,), (), metric=0.5, correct=1)
    assert three.reselected == Reselection((2,), (), metric=1.0, correct=2)
    assert two.metric.new == three.metric.new == 0.0


def test_new_experts_without_heldout_answers_are_named_and_do_not_vote():
    models = [model(0, 0.9, 0.1), model(1, 0.2, 0.5), model(2, 0.1, 0.7)]
    (ensemble,) = vote(
        [Voted(3, 2, (0, 1))], models, {0: ballot(True, True), 1: ballot(True, True)}
    )
    assert ensemble.metric.new == 1.0
    assert ensemble.reselected == Reselection((2, 1), (2,), metric=None, correct=None)


def test_the_best_ranked_expert_wins_a_tie_as_ranked_by_the_scorer_that_selects():
    models = [model(0, 0.9, 0.5), model(1, 0.2, 0.7)]
    ballots = {0: ballot(True, True), 1: ballot(False, False)}
    (ensemble,) = vote([Voted(2, 2, (0, 1))], models, ballots)
    assert ensemble.metric.new == 1.0
    assert ensemble.reselected.experts == (1, 0)
    assert ensemble.reselected.metric == 0.0


@pytest.mark.parametrize("heldout", [OldAndNew(0.5, 0.25), UNKNOWN])
def test_the_best_candidate_of_either_scorer_is_reported(heldout):
    models = [
        model(0, 0.9, 0.1, OldAndNew(0.5, 1.0)),
        model(1, 0.2, 0.5, heldout),
        model(2, 0.1, 0.5),
    ]
    best = rescored_rank_one(models)
    assert (best.index, best.metric) == (0, OldAndNew(0.5, 1.0))
    assert (best.reselected, best.reselected_metric) == (1, heldout.new)
