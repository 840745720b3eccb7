"""The votes on questions while the experts of an ensemble answer, best-ranked expert first.

The vote follows the rules of a search (`modnorm.search.voting`). Once no missing answer can change
the vote on a question, the question is settled, and the remaining experts skip it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from modnorm.search.voting import AnswerCount, RowVotes, count_answers

OnProgress = Callable[[int, int], None]
"""Called with the number of experts' answers that are given or skipped, and of all."""


def ignore_progress(_done: int, _total: int) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class ExpertAnswer:
    """The answer of one expert to one question."""

    expert: int
    """Candidate index."""
    vote: str | None
    """Vote key; None if the answer is not valid."""
    completion: str
    tokens: int
    """Generated tokens, the stop token included."""
    truncated: bool
    """Whether the completion cap ended it."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The ensemble's answer to one question."""

    row: int
    """Index of the question, from 0."""
    answer: str | None
    """The winning vote key; None if no expert gave a valid answer."""
    completion: str | None
    """Completion of the best-ranked expert that gave the winning answer."""
    agreement: float | None
    """Share of the experts that answered, and not of all K, that gave the winning answer."""
    votes: tuple[AnswerCount, ...]
    """Each answer once, the winner first."""
    skipped: int
    """Experts that left the question out, since its vote was settled."""
    experts: tuple[ExpertAnswer, ...]
    """The answers, best-ranked expert first."""


_PREDICTION = TypeAdapter(Prediction)


def prediction_line(prediction: Prediction) -> bytes:
    """Return a prediction as a line of JSON."""
    return f"{json.dumps(asdict(prediction), allow_nan=False)}\n".encode()


def read_predictions(path: Path) -> Iterator[Prediction]:
    """Yield the predictions of a file of such lines."""
    with path.open("rb") as lines:
        yield from map(_PREDICTION.validate_json, lines)


class RankedVotes:
    """Counts the answers of one expert after another, in the order of their ranks.

    So the predictions depend on the answers only, whichever workers give them.
    `size` is K, and `rows` are questions, ascending. With `ask_all` all experts also answer
    questions whose vote is settled.
    """

    def __init__(self, size: int, rows: Iterable[int], *, ask_all: bool = False) -> None:
        self._size = size
        self._ask_all = ask_all
        self._open: dict[int, tuple[RowVotes, list[ExpertAnswer]]] = {
            row: (RowVotes(size), []) for row in rows
        }

    @property
    def open_rows(self) -> Sequence[int]:
        """The questions that the next expert answers, ascending."""
        return list(self._open)

    def add(self, answers: Mapping[int, ExpertAnswer]) -> tuple[Prediction, ...]:
        """Count the next expert's answers by question, one for each open question at least.

        Returned are the predictions that no later expert changes, in the order of the questions.
        They close their questions.
        """
        predictions = []
        for row in self.open_rows:
            votes, given = self._open[row]
            votes.add(answers[row].vote)
            given.append(answers[row])
            if len(given) == self._size or (not self._ask_all and votes.is_settled):
                del self._open[row]
                predictions.append(_prediction(row, given, self._size))
        return tuple(predictions)


def _prediction(row: int, answers: Sequence[ExpertAnswer], size: int) -> Prediction:
    """Return the vote of the experts that answered a question, best-ranked first; `size` is K."""
    counts = count_answers([each.vote for each in answers], [each.expert for each in answers])
    winner = counts[0] if counts else None
    completions = {each.expert: each.completion for each in answers}
    return Prediction(
        row=row,
        answer=winner.answer if winner else None,
        completion=completions[winner.expert] if winner else None,
        agreement=winner.votes / len(answers) if winner else None,
        votes=counts,
        skipped=size - len(answers),
        experts=tuple(answers),
    )
