from collections import Counter
from itertools import product
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.search.voting import Ballot, RowVote, RowVotes, count_votes

RIGHT = "a"
KEYS = st.sampled_from([None, "a", "b", "c"])
COLUMNS = st.integers(1, 5).flatmap(
    lambda rows: st.lists(st.lists(KEYS, min_size=rows, max_size=rows), min_size=1, max_size=7)
)


class Judged(NamedTuple):
    vote: str | None
    correct: bool


def ballot(votes):
    return Ballot.from_answers(Judged(vote, vote == RIGHT) for vote in votes)


def literal_row(votes):
    """Vote on one row by the paper's definition, step by step."""
    best, best_count = None, 0
    for vote in votes:
        count = sum(other == vote for other in votes)
        if vote is not None and count > best_count:
            best, best_count = vote, count
    valid = sum(vote is not None for vote in votes)
    return RowVote(best, best == RIGHT, valid, best_count, votes.count(RIGHT))


@given(COLUMNS)
def test_every_row_is_voted_on_by_the_papers_definition(columns):
    counted = count_votes([ballot(votes) for votes in columns])
    rows = [list(votes) for votes in zip(*columns, strict=True)]
    assert counted == tuple(map(literal_row, rows))
    for vote, votes in zip(counted, rows, strict=True):
        published = Counter(filter(None, votes)).most_common(1)
        assert vote.answer == (published[0][0] if published else None)


def test_the_best_ranked_expert_decides_whether_the_winner_is_right():
    first, second = (
        Ballot.from_answers([Judged("x", True)]),
        Ballot.from_answers([Judged("x", False)]),
    )
    assert count_votes([first, second])[0].correct
    assert not count_votes([second, first])[0].correct


def test_an_answer_that_is_not_valid_is_never_right():
    assert not count_votes([Ballot.from_answers([Judged(None, True)])])[0].correct


@settings(max_examples=300)
@given(st.integers(0, 4), st.lists(KEYS, max_size=6))
def test_a_row_is_settled_exactly_when_no_missing_answer_can_change_the_winner(missing, votes):
    row = RowVotes(len(votes) + missing)
    for vote in votes:
        row.add(vote)
    completions = product([None, "a", "b", "c", "new"], repeat=missing)
    winners = {literal_row([*votes, *completion]).answer for completion in completions}
    assert row.is_settled is (len(winners) == 1)


def test_thirteen_equal_answers_settle_a_row_of_25_experts():
    row = RowVotes(25)
    for _ in range(12):
        row.add("a")
        assert not row.is_settled
    row.add("a")
    assert row.is_settled
