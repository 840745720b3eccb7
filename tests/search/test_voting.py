from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from modnorm.search.voting import Tally, plurality

VOTES = st.lists(st.none() | st.sampled_from(["1", "2", "3", "98"]), max_size=25)


def literal_vote(votes):
    """Count by hand; a later answer must have strictly more votes to win."""
    winner, support = None, 0
    for candidate in votes:
        if candidate is None:
            continue
        count = 0
        for vote in votes:
            if vote == candidate:
                count += 1
        if count > support:
            winner, support = candidate, count
    return winner, support


@given(VOTES)
def test_the_vote_is_that_of_a_literal_loop(votes):
    tally = plurality(votes)
    assert (tally.answer, tally.support) == literal_vote(votes)
    assert tally.valid == sum(vote is not None for vote in votes)


@given(VOTES)
def test_the_vote_is_that_of_the_published_counter(votes):
    valid = [vote for vote in votes if vote]
    expected = Counter(valid).most_common(1)[0][0] if valid else None
    assert plurality(votes).answer == expected


def test_ties_go_to_the_answer_of_the_best_ranked_expert():
    assert plurality(["2", "1", "1", "2"]) == Tally(answer="2", valid=4, support=2)


def test_invalid_answers_receive_no_vote():
    assert plurality([None, None, "7"]) == Tally(answer="7", valid=1, support=1)
    assert plurality([None, None]) == plurality([]) == Tally(answer=None, valid=0, support=0)
