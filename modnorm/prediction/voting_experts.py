"""The vote of an ensemble on questions: experts answer one after another in one engine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from modnorm.engines.protocol import Engine, Finish, GenerationLimits
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert
from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction, RankedVotes
from modnorm.tasks import Row, Task
from modnorm.tasks.row_loading import vote_key


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions and their prompts, answered in one request."""

    rows: Sequence[Row | None]
    """None where no vote is wanted."""
    prompts: Sequence[Sequence[int]]
    """Token ids of each prompt."""
    stops: Sequence[Sequence[str]] = ()
    """Texts that end the completion of each question; none without an entry."""


class VotingExperts:
    """An ensemble whose experts take turns in one engine."""

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
        """Return the vote on each question, in order."""
        rows = len(questions.rows)
        votes = RankedVotes(self._ensemble.indices, rows, ask_all=self._ask_all)
        predictions: list[Prediction] = []
        for place, expert in enumerate(self._ensemble.experts):
            done = (place + 1) * rows - len(votes.open_rows)
            answers: dict[int, ExpertAnswer] = {}
            for row, answer in self._answers(expert, questions, votes.open_rows):
                answers[row] = answer
                on_progress(done + len(answers))
            on_progress((place + 1) * rows)
            predictions += votes.add(answers)
        return tuple(sorted(predictions, key=lambda each: each.row))

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
                question = questions.rows[row]
                text = _before(completion.text, questions.stops[row] if questions.stops else ())
                is_whole = text == completion.text
                yield (
                    row,
                    ExpertAnswer(
                        expert=expert.index,
                        vote=None if question is None else vote_key(self._task, question, text),
                        completion=text,
                        tokens=completion.tokens,
                        truncated=is_whole and completion.finish is Finish.LENGTH,
                    ),
                )


def _before(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first of some texts; the whole text without one."""
    places = [place for place in map(text.find, stops) if place >= 0]
    return text[: min(places)] if places else text
