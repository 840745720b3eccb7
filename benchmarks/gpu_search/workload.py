"""The workload of every contender: prompts, and the drawn answers of each candidate.

Random weights give meaningless answers, so lengths and answers are drawn from seeds:

- Prompts are 120 to 180 random token ids.
- The length of an answer is log-normal with a median of 180 tokens. A tenth of its mass is beyond
  the cap of 1,024, where answers are cut.
- A candidate has a rate of correct answers (`RATES`). Short answers, of up to twice the median
  length, are right twice as often as long answers and twenty times as often as cut answers.
- The text of an answer is the model's output followed by a Countdown expression, correct or
  wrong as drawn. A cut wrong answer has no expression. The task's scorer judges the text.

The search learns the length and the reward of an answer only when it is complete.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from modnorm.search.ranking import mean_reward
from modnorm.tasks.countdown import Countdown
from modnorm.tasks.protocol import Judgement, Message, Row

_TENTH = 1.2815515655446004
"""The 0.9 quantile of the standard normal distribution."""
_LONG, _CUT = 1 / 2, 1 / 20
"""Relative rates of correct long and cut answers, compared with short ones."""
_SHARES = (0.694, 0.206, 0.1)
"""Shares of short, long and cut answers with the default median and cap."""
_FIRST_WORD = 8
"""Ids below are special tokens."""

Rate = Callable[[np.random.Generator], float]
SaidText = Callable[[int, int, int], str]
"""Text of an answer, from its candidate, row and tokens."""
_BUNDLED = (
    0.17, 0.65, 0.24, 0.09, 0.11, 0.56, 0.42, 0.14, 0.24, 0.66, 0.56, 0.07, 0.55, 0.16, 0.32, 0.12,
    0.35, 0.46, 0.16, 0.30, 0.60, 0.07, 0.37, 0.26, 0.06, 0.05, 0.32, 0.63, 0.26, 0.65, 0.01, 0.61,
)  # fmt: skip
"""Correct answers of 32 candidates: `examples/countdown-randopt.yaml`, N = 32, 100 rows each."""
RATES: Mapping[str, Rate] = {
    # The bundled model's candidates at their tuned scale, each equally likely.
    "bundled": lambda draws: float(draws.choice(_BUNDLED)),
    # About the published base on GSM8K (0.705), a few points to either side.
    "narrow": lambda draws: float(np.clip(draws.normal(0.705, 0.025), 0.0, 0.8)),
}


@dataclass(frozen=True)
class Answers:
    """The drawn answers of one candidate."""

    lengths: tuple[int, ...]
    """Tokens of each answer."""
    right: tuple[bool, ...]


@dataclass(frozen=True)
class Workload:
    """All draws, as their seeds and sizes."""

    rows: int = 200
    median: int = 180
    cap: int = 1024
    rates: str = "bundled"
    vocabulary: int = 151936
    seed: int = 42

    def prompts(self) -> tuple[tuple[int, ...], ...]:
        """Return the token ids of each prompt."""
        draws = self._draws(0)
        sizes = draws.integers(120, 181, self.rows)
        return tuple(
            tuple(draws.integers(_FIRST_WORD, self.vocabulary, size).tolist()) for size in sizes
        )

    def answers(self, candidate: int) -> Answers:
        """Return the answers of a candidate, which do not depend on other candidates."""
        draws = self._draws(1, candidate)
        rate = RATES[self.rates](draws)
        spread = log(self.cap / self.median) / _TENTH
        lengths = np.exp(draws.normal(log(self.median), spread, self.rows))
        lengths = np.clip(np.ceil(lengths), 1, self.cap).astype(int)
        right = draws.random(self.rows) < rate * self._weights(lengths)
        return Answers(tuple(lengths.tolist()), tuple(right.tolist()))

    def table(self, candidate: int) -> tuple[Row, ...]:
        """Return the rows of a candidate: puzzles with its drawn answers."""
        given = self.answers(candidate)
        puzzles = self._draws(2).integers(1, 100, (self.rows, 3)).tolist()
        return tuple(
            _row(numbers, right=right, cut=length >= self.cap)
            for numbers, length, right in zip(puzzles, given.lengths, given.right, strict=True)
        )

    def shortened(self, cap: int) -> "Workload":
        """Return the workload with short answers, for a warm-up."""
        return replace(self, cap=cap, median=max(1, cap // 2))

    def _weights(self, lengths: "np.typing.NDArray[np.int_]") -> "np.typing.NDArray[np.float64]":
        weights = np.where(lengths > 2 * self.median, _LONG, 1.0)
        weights = np.where(lengths >= self.cap, _CUT, weights)
        mean = sum(share * kind for share, kind in zip(_SHARES, (1, _LONG, _CUT), strict=True))
        return weights / mean

    def _draws(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, *stream))


def _row(numbers: Sequence[int], *, right: bool, cut: bool) -> Row:
    first, second, third = numbers
    sign = "+" if right else "-"
    said = f"</think>\n<answer>({first} {sign} {second}) + {third}</answer>"
    tail = "" if cut and not right else said
    return {"numbers": list(numbers), "target": sum(numbers), "tail": tail}


class DrawnTask:
    """Countdown with its real scorer, on texts with drawn endings."""

    name = "countdown"
    scorer = "countdown-v2"
    reward_bounds = Countdown.reward_bounds

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._task = Countdown()

    def parse(self, raw: Mapping[str, object]) -> Row:
        """Return a row unchanged."""
        return raw

    def messages(self, row: Row) -> tuple[Message, ...]:
        """Return Countdown's prompt, which the workload does not use."""
        return self._task.messages(row)

    def judge(self, row: Row, completion: str) -> Judgement:
        """Judge the model's output with the drawn ending."""
        return self._task.judge(row, completion + str(row["tail"]))

    def metric(self, rows: Sequence[Row], correct: Sequence[bool]) -> float:
        """Accuracy."""
        return self._task.metric(rows, correct)


def drawn_scores(
    workload: Workload, candidates: int, said: SaidText | None = None
) -> dict[int, float]:
    """Return the score of each candidate if its answers are exactly the drawn ones.

    A cut wrong answer has no ending. If the model says recorded texts, they may have rewards.

    Args:
        workload: The draws.
        candidates: Number of candidates.
        said: Returns the text before the ending; None for noise without reward.
    """
    return {candidate: _score(workload, candidate, said) for candidate in range(candidates)}


def _score(workload: Workload, candidate: int, said: SaidText | None) -> float:
    task, lengths = DrawnTask(workload.cap), workload.answers(candidate).lengths
    texts = [said(candidate, row, size) if said else "" for row, size in enumerate(lengths)]
    judged = map(task.judge, workload.table(candidate), texts)
    return mean_reward([one.reward for one in judged])
