from modnorm.analysis.run_data import EnsembleRow
from modnorm.analysis.votes import vote_records
from modnorm.search.voting import AnswerCount, Ballot, count_votes

ENSEMBLE = EnsembleRow(
    population=8, ensemble_size=4, experts=(5, 2, 7, 0), metric=0.0, correct=0, rows=1
)


def record(*said):
    """Vote on one row whose right answer is "1"; `said` is in the order of the experts."""
    ballots = {
        expert: Ballot((vote,), (vote == "1",))
        for expert, vote in zip(ENSEMBLE.experts, said, strict=True)
    }
    outcome = count_votes([ballots[expert] for expert in ENSEMBLE.experts])[0]
    (found,) = vote_records(ENSEMBLE, [outcome], ballots, ["1"])
    assert (found.answer, found.support) == (outcome.answer, outcome.support)
    return found


def test_a_plain_majority_is_no_tie():
    found = record("1", "2", "1", None)
    assert (found.population, found.ensemble_size, found.row, found.gold) == (8, 4, 0, "1")
    assert found.experts == (5, 2, 7, 0)
    assert found.votes == ("1", "2", "1", None)
    assert found.expert_correct == (True, False, True, False)
    assert found.counts == (AnswerCount("1", 2, 5), AnswerCount("2", 1, 2))
    assert (found.tied, found.tie_broken_by) == ((), None)


def test_the_best_ranked_expert_of_the_tied_answers_breaks_a_tie():
    found = record("3", "2", "1", "1")
    assert found.answer == "1"
    found = record(None, "2", "1", None)
    assert found.answer == "2"
    assert found.tied == ("2", "1")
    assert found.tie_broken_by == 2
    assert found.counts[0] == AnswerCount("2", 1, 2)


def test_without_a_valid_answer_nothing_is_counted():
    found = record(None, None, None, None)
    assert (found.answer, found.counts, found.tied, found.tie_broken_by) == (None, (), (), None)
