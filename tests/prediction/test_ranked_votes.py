"""Votes of experts that answer by rank are those of all experts."""

from hypothesis import given
from hypothesis import strategies as st

from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction, RankedVotes
from modnorm.search.voting import plurality

SCRIPTS = st.integers(1, 6).flatmap(
    lambda rows: st.lists(
        st.lists(st.sampled_from(["a", "b", "c", None]), min_size=rows, max_size=rows),
        min_size=1,
        max_size=7,
    )
)


def answer(expert, vote):
    return ExpertAnswer(expert, vote, f"{expert} says {vote}", 1, truncated=False)


def one_after_another(script, *, ask_all=False):
    """Ask each expert the open questions only."""
    votes = RankedVotes(len(script), range(len(script[0])), ask_all=ask_all)
    predictions: list[Prediction] = []
    for expert, given_votes in enumerate(script):
        predictions += votes.add(
            {row: answer(expert, given_votes[row]) for row in votes.open_rows}
        )
    assert not votes.open_rows
    return predictions


@given(SCRIPTS)
def test_every_question_gets_the_vote_of_all_experts(script):
    for ask_all in (False, True):
        predictions = one_after_another(script, ask_all=ask_all)
        assert sorted(each.row for each in predictions) == list(range(len(script[0])))
        for each in predictions:
            said = [votes[each.row] for votes in script]
            assert each.answer == plurality(said, [False] * len(said)).answer
            assert each.skipped + len(each.experts) == len(script)
            assert not (ask_all and each.skipped)


def test_a_settled_question_is_predicted_before_the_last_expert():
    votes = RankedVotes(3, range(2))
    assert not votes.add({0: answer(4, "a"), 1: answer(4, "b")})
    (settled,) = votes.add({0: answer(2, "a"), 1: answer(2, "c")})
    assert (settled.row, settled.answer, settled.skipped) == (0, "a", 1)
    assert votes.open_rows == [1]
