from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from modnorm.search.ballots import Ballot, RowVote, count_votes

RIGHT = "a"
VOTES = st.sampled_from([None, "a", "b", "c"])
COLUMNS = st.integers(1, 5).flatmap(
    lambda rows: st.lists(st.lists(VOTES, min_size=rows, max_size=rows), min_size=1, max_size=7)
)


class Said(NamedTuple):
    vote: str | None
    correct: bool


def ballot(votes):
    return Ballot.of(Said(vote, vote == RIGHT) for vote in votes)


def literal(votes):
    """Vote on one row as the paper says it, step by step."""
    best, best_count = None, 0
    for vote in votes:
        count = sum(other == vote for other in votes)
        if vote is not None and count > best_count:
            best, best_count = vote, count
    valid = sum(vote is not None for vote in votes)
    return RowVote(best, best == RIGHT, valid, best_count, votes.count(RIGHT))


@given(COLUMNS)
def test_every_row_is_voted_on_as_the_paper_says(columns):
    counted = count_votes([ballot(votes) for votes in columns])
    assert counted == tuple(literal(list(votes)) for votes in zip(*columns, strict=True))


def test_equal_answers_count_as_the_best_ranked_expert_was_judged():
    first, second = Ballot.of([Said("x", True)]), Ballot.of([Said("x", False)])
    assert count_votes([first, second])[0].correct
    assert not count_votes([second, first])[0].correct


def test_a_row_without_a_valid_answer_is_wrong():
    assert count_votes([ballot([None]), ballot([None])]) == (RowVote(None, False, 0, 0, 0),)


def test_rows_that_are_left_out_are_counted_apart():
    some = Ballot.of_some({1: Said("a", True)}, 2)
    assert count_votes([some, ballot(["b", "a"])]) == (
        RowVote("b", False, 1, 1, 0, skipped=1),
        RowVote("a", True, 2, 2, 2),
    )
