"""Early stop selects the experts of the plain loop, in any order of work."""

import sys
import threading
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.errors import PreconditionError
from modnorm.search.ranking import mean_reward, rank, select_experts
from modnorm.search.stopping import (
    EarlyStop,
    Interval,
    Threshold,
    Thresholds,
    certain_ranks,
    score_interval,
)
from modnorm.tasks.protocol import RewardBounds

BOUNDS = RewardBounds(0.0, 1.1)
# Few values, so that ties are common; their sums round.
REWARDS = (0.0, 0.0, 0.1, 0.05, 1.0, 1.1)


def literal_threshold(complete: dict[int, float], prefixes, size, index) -> Threshold | None:
    """Return the weakest K-th best score of all prefixes that include the candidate."""
    weakest = []
    for prefix in prefixes:
        if index >= prefix:
            continue
        ranked = sorted((-r, i) for i, r in complete.items() if i < prefix)
        if len(ranked) < size:
            return None
        weakest.append(ranked[size - 1])
    worst = max(weakest, default=None)
    return None if worst is None else Threshold(-worst[0], worst[1])


@st.composite
def populations(draw):
    """Draw a size, its prefixes and its ensemble sizes."""
    size = draw(st.integers(2, 24))
    prefixes = sorted({size, *draw(st.lists(st.integers(1, size), max_size=3))})
    sizes = sorted({draw(st.integers(1, prefixes[0])) for _ in range(2)})
    return size, tuple(prefixes), tuple(sizes)


@given(populations(), st.data())
def test_the_threshold_is_that_of_the_definition(population, data):
    size, prefixes, ensemble_sizes = population
    thresholds = Thresholds(prefixes, ensemble_sizes[-1])
    complete: dict[int, float] = {}
    indices = data.draw(st.lists(st.integers(-1, size - 1), max_size=40))
    for index in indices:
        reward = complete.setdefault(index, data.draw(st.sampled_from(REWARDS)))
        thresholds.add(index, reward)
        candidates = {i: r for i, r in complete.items() if i >= 0}
        for each in range(size):
            expected = literal_threshold(candidates, prefixes, ensemble_sizes[-1], each)
            assert thresholds.of(each) == expected
    assert thresholds.of(-1) is None
    assert thresholds.of(size) is None


class Worker:
    """Scores candidates one row at a time, with the last threshold that it received."""

    def __init__(self, table, failing, rows, random):
        self.table, self.failing, self.rows, self.random = table, failing, rows, random
        self.index = None

    def claim(self, index, threshold):
        self.index, self.threshold = index, threshold
        self.order = self.random.sample(range(self.rows), self.rows)
        self.rewards = []
        self.fails_at = self.random.randrange(self.rows) if index in self.failing else None
        self.stop = EarlyStop(index, BOUNDS, lambda: self.threshold)

    def step(self):
        """Answer a row; return the candidate's outcome, or None while it continues."""
        stopped = self.stop.decide(self.rewards, self.rows)
        if stopped is not None:
            return stopped
        if len(self.rewards) == self.rows:
            return mean_reward(self.table[self.index])
        if self.fails_at == len(self.rewards):
            return "failed"
        self.rewards.append(self.table[self.index][self.order[len(self.rewards)]])
        return None


class Search:
    """Several workers with lost attempts, stale thresholds, repeated reports and restarts."""

    def __init__(self, table, prefixes, size, random):
        self.prefixes, self.size, self.random = prefixes, size, random
        self.pending = random.sample(range(len(table)), len(table))
        self.rewards, self.stopped = [None] * len(table), {}
        self.restart()

    def restart(self):
        """Restart from the stored scores."""
        self.thresholds = Thresholds(self.prefixes, self.size)
        for index, reward in enumerate(self.rewards):
            if reward is not None:
                self.thresholds.add(index, reward)

    def run(self, crew):
        while self.pending or any(worker.index is not None for worker in crew):
            worker = self.random.choice(crew)
            if worker.index is not None:
                self.advance(worker)
            elif self.pending:
                index = self.pending.pop(0)
                worker.claim(index, self.thresholds.of(index))
        return self.rewards, self.stopped

    def advance(self, worker):
        event = self.random.random()
        if event < 0.02:  # the lease is lost; the candidate is pending again
            place = self.random.randint(0, len(self.pending))
            self.pending.insert(place, worker.index)
            worker.index = None
        elif event < 0.1:  # a heartbeat
            worker.threshold = self.thresholds.of(worker.index)
        elif (outcome := worker.step()) is not None:
            self.store(worker.index, outcome)
            worker.index = None

    def store(self, index, outcome):
        if isinstance(outcome, Interval):
            self.stopped[index] = outcome
        elif outcome != "failed":
            self.rewards[index] = outcome
            for _ in range(self.random.choice([1, 1, 1, 2])):  # a report may be repeated
                self.thresholds.add(index, outcome)
        if self.random.random() < 0.05:
            self.restart()


def experts_or_none(rewards, prefixes, sizes):
    try:
        return select_experts(rewards, prefixes, sizes)
    except PreconditionError:
        return None


@settings(max_examples=150)
@given(
    populations(),
    st.integers(1, 8),
    st.integers(1, 5),
    st.floats(0, 0.3),
    st.lists(st.sampled_from(REWARDS), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_any_interleaving_selects_the_experts_of_the_plain_loop(
    population, rows, workers, failures, values, seed
):
    random = Random(seed)
    size, prefixes, sizes = population
    table = [[random.choice(values) for _ in range(rows)] for _ in range(size)]
    failing = {index for index in range(size) if random.random() < failures}
    plain = [None if i in failing else mean_reward(table[i]) for i in range(size)]
    crew = [Worker(table, failing, rows, random) for _ in range(workers)]
    rewards, stopped = Search(table, prefixes, sizes[-1], random).run(crew)
    assert experts_or_none(rewards, prefixes, sizes) == experts_or_none(plain, prefixes, sizes)
    for index, reward in enumerate(rewards):
        assert reward in {None, plain[index]}
        if index in stopped and plain[index] is not None:
            assert stopped[index].lower <= plain[index] <= stopped[index].upper
    whole = {index: place for place, index in enumerate(rank(plain, size), 1)}
    ranks = certain_ranks(rewards, stopped)
    if not failing & stopped.keys():
        assert ranks.items() <= whole.items()
        if not stopped:
            assert ranks == whole


def test_a_threshold_is_read_while_another_thread_adds_scores():
    thresholds = Thresholds((100_000,), 5)
    for index in range(5):
        thresholds.add(index, 0.0)
    read, ended = [], threading.Event()

    def follow():
        while not ended.is_set():
            read.append(thresholds.of(7))

    before = sys.getswitchinterval()
    reader = threading.Thread(target=follow)
    try:
        sys.setswitchinterval(1e-6)
        reader.start()
        for index in range(5, 5_000):
            thresholds.add(index, index / 5_000)
    finally:
        ended.set()
        reader.join()
        sys.setswitchinterval(before)
    rewards = [threshold.reward for threshold in read if threshold]
    assert len(rewards) == len(read)
    assert rewards == sorted(rewards)


@given(st.lists(st.sampled_from(REWARDS), min_size=1, max_size=12), st.data())
def test_the_score_lies_in_every_interval_on_the_way(rewards, data):
    order = data.draw(st.permutations(rewards))
    score = mean_reward(rewards)
    before = score_interval([], len(order), BOUNDS)
    for count in range(len(order) + 1):
        interval = score_interval(order[:count], len(order), BOUNDS)
        assert before.lower <= interval.lower <= score <= interval.upper <= before.upper
        before = interval
    assert before == Interval(score, score)


def test_ranks_that_a_stopped_candidate_may_change_are_omitted():
    stopped = {1: Interval(0.1, 0.4), 4: Interval(0.8, 0.9)}
    assert certain_ranks([0.5, None, 0.3, 0.05, None, 0.8], stopped) == {5: 2, 0: 3, 3: 6}
