from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from modnorm.search.voting import Ballot, RowVote, count_votes

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
