"""The vote of an ensemble on questions: experts answer one after another.

The vote follows the rules of a search (`modnorm.search.voting`). An expert skips the questions
whose vote is settled (`modnorm.search.settled_votes`), so no skipped answer can change a vote.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from modnorm.engines.protocol import Completion, Engine, Finish, GenerationLimits
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert
from modnorm.search.settled_votes import SettledVotes
from modnorm.search.voting import AnswerCount, Ballot, count_answers
from modnorm.tasks import Row, Task
from modnorm.tasks.questions import vote_key


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

    @property
    def correct(self) -> bool:
        """False: no right answer is known."""
        return False


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


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions and their prompts, answered in one request."""

    rows: Sequence[Row | None]
    """None where no vote is wanted."""
    prompts: Sequence[Sequence[int]]
    """Token ids of each prompt."""


class VotingExperts:
    """An ensemble whose experts take turns in one engine.

    Args:
        engine: Holds the base of the ensemble before and after each call.
        ensemble: The ensemble.
        task: Its task, which extracts vote keys.
        ask_all: Whether experts also answer questions whose vote is settled.
    """

    def __init__(
        self, engine: Engine, ensemble: EnsembleDefinition, task: Task, *, ask_all: bool = False
    ) -> None:
        self._engine = engine
        self._ensemble = ensemble
        self._task = task
        self._ask_all = ask_all

    def predict(
        self, questions: Questions, on_progress: Callable[[int], None] = lambda _done: None
    ) -> tuple[Prediction, ...]:
        """Return the vote on each question, in order.

        Args:
            questions: The questions.
            on_progress: Called with the number of answers that are given or skipped.

        Raises:
            InvalidInputError: a prompt does not fit the model, or the task's code raised.
            EvaluationError: an expert cannot answer, or the engine failed.
        """
        size, rows = self._ensemble.ensemble_size, len(questions.rows)
        selection = {(self._ensemble.population, size): self._ensemble.indices}
        settled = SettledVotes(selection, rows)
        sheets: list[Mapping[int, ExpertAnswer]] = []
        for place, expert in enumerate(self._ensemble.experts):
            skipped = frozenset(() if self._ask_all else settled.skippable(expert.index))
            asked = [row for row in range(rows) if row not in skipped]
            done, sheet = place * rows + len(skipped), {}
            for row, answer in self._answers(expert, questions, asked):
                sheet[row] = answer
                on_progress(done + len(sheet))
            on_progress((place + 1) * rows)
            settled.add(expert.index, Ballot.from_partial_answers(sheet, rows))
            sheets.append(sheet)
        return tuple(_combined(row, sheets) for row in range(rows))

    def _answers(
        self, expert: Expert, questions: Questions, asked: Sequence[int]
    ) -> Iterator[tuple[int, ExpertAnswer]]:
        """Yield question and answer as the expert completes them."""
        if not asked:
            return
        prompts = [questions.prompts[row] for row in asked]
        limits = GenerationLimits(self._ensemble.task.max_tokens)
        with (
            self._engine.candidate(expert.descriptor, self._ensemble.scale_map),
            closing(self._engine.generate(prompts, limits)) as completions,
        ):
            for completion in completions:
                row = asked[completion.index]
                yield row, expert_answer(expert, self._task, questions.rows[row], completion)


def expert_answer(
    expert: Expert, task: Task, row: Row | None, completion: Completion
) -> ExpertAnswer:
    """Return an expert's completion with its vote.

    Args:
        expert: The expert.
        task: Extracts the vote.
        row: The question; None where no vote is wanted.
        completion: The expert's completion.

    Raises:
        InvalidInputError: the task's code raised.
    """
    return ExpertAnswer(
        expert=expert.index,
        vote=None if row is None else vote_key(task, row, completion.text),
        completion=completion.text,
        tokens=completion.tokens,
        truncated=completion.finish is Finish.LENGTH,
    )


def prediction_of(row: int, answers: Sequence[ExpertAnswer], size: int) -> Prediction:
    """Return the vote of the experts that answered a question.

    Args:
        row: Index of the question.
        answers: The answers, best-ranked expert first.
        size: K.
    """
    answers = tuple(answers)
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
        experts=answers,
    )


def _combined(row: int, sheets: Sequence[Mapping[int, ExpertAnswer]]) -> Prediction:
    return prediction_of(row, [sheet[row] for sheet in sheets if row in sheet], len(sheets))
