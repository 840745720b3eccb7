"""The short-circuit of votes gives the winners of the plain loop, right or wrong."""

from dataclasses import dataclass
from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.search.ranking import expert_union, select_experts
from modnorm.search.voting import Ballot, SettledVotes, count_votes, plurality

RIGHT = "a"


@dataclass
class Judged:
    vote: str | None

    @property
    def correct(self):
        return self.vote == RIGHT


def ballot(votes, skipped_rows=()):
    answers = {row: Judged(vote) for row, vote in enumerate(votes) if row not in skipped_rows}
    return Ballot.from_partial_answers(answers, len(votes))


@st.composite
def known_votes(draw):
    """Draw the votes of one row, best-ranked expert first; '?' for a missing vote."""
    size = draw(st.integers(1, 6))
    votes = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=size, max_size=size))
    missing = draw(st.sets(st.integers(0, size - 1), max_size=3))
    return ["?" if i in missing else vote for i, vote in enumerate(votes)]


@settings(max_examples=300)
@given(known_votes())
def test_a_row_is_settled_exactly_when_no_missing_answer_can_change_the_winner(votes):
    experts = (
        9,
        *range(len(votes)),
    )  # the first expert answers every row, here without a valid answer
    settled_votes = SettledVotes({(20, len(experts)): experts}, 1)
    settled_votes.add(9, ballot([None]))
    for expert, vote in enumerate(votes):
        if vote != "?":
            settled_votes.add(expert, ballot([vote]))
    missing = [i for i, vote in enumerate(votes) if vote == "?"]
    winners = set()
    for completion in product([None, "a", "b", "c", "new"], repeat=len(missing)):
        whole = list(votes)
        for place, vote in zip(missing, completion, strict=True):
            whole[place] = vote
        winners.add(plurality(whole).answer)
    asked = missing[0] if missing else 0
    assert (settled_votes.skippable(asked) == (0,)) is (len(winners) == 1)


@st.composite
def experiments(draw):
    """Draw scores, prefixes and ensemble sizes."""
    size = draw(st.integers(2, 12))
    prefixes = tuple(sorted({size, draw(st.integers(1, size))}))
    sizes = tuple(sorted({draw(st.integers(1, prefixes[0])) for _ in range(3)}))
    rewards = draw(st.permutations([index / size for index in range(size)]))
    return select_experts(rewards, prefixes, sizes)


def vote(selection, table, base, workers, random):
    """Let workers answer in any order, lose attempts and restart; return all ballots."""
    rows = len(table[base])
    pending = [*expert_union(selection), base]
    random.shuffle(pending)
    ballots: dict[int, Ballot] = {}
    settled_votes = SettledVotes(selection, rows)
    busy: list[tuple[int, tuple[int, ...]]] = []
    while pending or busy:
        if pending and len(busy) < workers:
            expert = pending.pop()
            busy.append((expert, settled_votes.skippable(expert)))
            continue
        expert, skipped_rows = busy.pop(random.randrange(len(busy)))
        if random.random() < 0.1:  # the attempt is lost
            pending.append(expert)
            continue
        ballots[expert] = ballot(table[expert], skipped_rows)
        settled_votes.add(expert, ballots[expert])
        if random.random() < 0.2:  # the aggregator restarts from the stored ballots
            settled_votes = SettledVotes(selection, rows)
            for each in random.sample(list(ballots), len(ballots)):
                settled_votes.add(each, ballots[each])
    return ballots


@settings(max_examples=200)
@given(
    experiments(),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from(["a", "ab", "aab", "abc", "aaab"]),
    st.integers(0, 2**32),
)
def test_any_interleaving_gives_the_votes_of_the_plain_loop(
    selection, rows, workers, alphabet, seed
):
    random, base = Random(seed), -1
    choice = [None, *alphabet, *alphabet]
    table = {
        expert: [random.choice(choice) for _ in range(rows)]
        for expert in (base, *expert_union(selection))
    }
    ballots = vote(selection, table, base, workers, random)
    for (_, size), experts in selection.items():
        plain = count_votes([ballot(table[expert]) for expert in experts])
        short = count_votes([ballots[expert] for expert in experts])
        for one, other in zip(plain, short, strict=True):
            assert (one.answer, one.correct) == (other.answer, other.correct)
            assert other.skipped or one == other
            assert one.skipped == 0
            assert size > 1 or not other.skipped
    alone = {base, *(experts[0] for experts in selection.values())}
    assert not any(any(ballots[expert].skipped) for expert in alone)


def test_rows_on_which_experts_agree_are_skipped_by_the_others():
    experts = tuple(range(9))
    settled_votes = SettledVotes({(9, 9): experts}, 4)
    for expert in experts[:4]:
        settled_votes.add(expert, ballot(["a", "a", "b", None]))
        assert settled_votes.skippable(8) == ()
    settled_votes.add(4, ballot(["a", "b", "b", None]))
    assert settled_votes.skippable(8) == (0, 2)
    assert settled_votes.counted == {0, 1, 2, 3, 4}
