"""A finished run judged by another scorer, from its stored completions."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter, ne
from typing import TypedDict

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from modnorm.analysis.candidates import CandidateRecord
from modnorm.analysis.run import Run
from modnorm.analysis.run_data import BaseRow, EnsembleRow
from modnorm.errors import EngineError, InvalidInputError
from modnorm.search.answers import BASE_INDEX, Answer
from modnorm.search.ranking import mean_reward, rank, select_experts
from modnorm.search.voting import Ballot, count_votes
from modnorm.tasks import Judgement, Row, Task, task_errors

SCHEMA = "modnorm-rescored-1"
_SELECTION, _HELDOUT = "selection", "heldout"
_ATTEMPTS = 3
"""Attempts to run a program if its sandbox fails; a failure is no verdict."""


class OldAndNew(TypedDict):
    """A figure by the old and by the new scorer; None where unknown."""

    old: float | None
    new: float | None


class JudgedSplit(TypedDict):
    """Answers to the rows of a split."""

    total: int
    changed: int
    """Answers with another reward, verdict or vote, be it only written otherwise."""


class RescoredModel(TypedDict):
    """The base or a candidate."""

    index: int
    selection_reward: OldAndNew
    heldout_metric: OldAndNew
    changed_selection: int
    changed_heldout: int


class RescoredRankOne(TypedDict):
    """The best candidate by each scorer's selection rewards."""

    index: int
    metric: OldAndNew
    reselected: int
    reselected_metric: float | None


class Reselection(TypedDict):
    """The experts that the new scorer selects; they vote only if none is missing."""

    experts: list[int]
    missing: list[int]
    """Experts without held-out answers."""
    metric: float | None
    correct: int | None


class RescoredEnsemble(TypedDict):
    """One (N, K): the experts of the run, and those that the new scorer selects."""

    population: int
    ensemble_size: int
    experts: list[int]
    metric: OldAndNew
    correct: OldAndNew
    reselected: Reselection


class RescoredDocument(TypedDict):
    """The content of `rescored-SCORER.json`."""

    schema: str
    spec: Mapping[str, object]
    provenance: Mapping[str, object]
    old_scorer: str
    new_scorer: str
    selection: JudgedSplit
    heldout: JudgedSplit
    base: RescoredModel
    candidates: list[RescoredModel]
    rank_1: RescoredRankOne
    ensembles: list[RescoredEnsemble]


def rescore_run(
    run: Run,
    task: Task,
    *,
    judges: Executor | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> RescoredDocument:
    """Judge all completions of a finished run anew, rank and vote."""
    if run.spec.iterative is not None:
        raise InvalidInputError(
            f"{run.spec.method.name} trained its model by the old scorer, and no ensemble votes",
            field="run",
            remedy="train again with the other scorer in task.scorer",
        )
    found = _judge_run(run, task, judges, on_progress)
    candidates = [found.model(each.index, each) for each in run.candidates]
    old, new = (
        [each["selection_reward"][scorer] for each in candidates] for scorer in ("old", "new")
    )
    first, again = (rank(rewards, len(candidates))[0] for rewards in (old, new))
    selected = select_experts(
        new,
        sorted({each.population for each in run.ensembles}),
        sorted({each.ensemble_size for each in run.ensembles}),
    )
    return RescoredDocument(
        schema=SCHEMA,
        spec=run.spec.model_dump(mode="json"),
        provenance=run.provenance,
        old_scorer=str(run.provenance["scorer"]),
        new_scorer=task.scorer,
        selection=found.split(_SELECTION),
        heldout=found.split(_HELDOUT),
        base=found.model(BASE_INDEX, run.base),
        candidates=candidates,
        rank_1=RescoredRankOne(
            index=first,
            metric=candidates[first]["heldout_metric"],
            reselected=again,
            reselected_metric=candidates[again]["heldout_metric"]["new"],
        ),
        ensembles=[found.ensemble(each, selected[each.place]) for each in run.ensembles],
    )


@dataclass(frozen=True, slots=True)
class _Judgements:
    """All answers of a run as the new scorer judges them, by index of their model."""

    task: Task
    heldout: Sequence[Row]
    rewards: Mapping[int, float]
    """Mean selection rewards."""
    ballots: Mapping[int, Ballot]
    """Judgements of the held-out answers."""
    judged: Counter[str]
    """Answers by split."""
    changed: Counter[tuple[int, str]]
    """Answers with another reward, verdict or vote."""

    def split(self, name: str) -> JudgedSplit:
        changed = sum(count for (_, split), count in self.changed.items() if split == name)
        return JudgedSplit(total=self.judged[name], changed=changed)

    def model(self, index: int, before: BaseRow | CandidateRecord) -> RescoredModel:
        ballot = self.ballots.get(index)
        metric = None if ballot is None else self._metric(ballot.correct)
        return RescoredModel(
            index=index,
            selection_reward=OldAndNew(old=before.selection_reward, new=self.rewards.get(index)),
            heldout_metric=OldAndNew(old=before.heldout_metric, new=metric),
            changed_selection=self.changed[index, _SELECTION],
            changed_heldout=self.changed[index, _HELDOUT],
        )

    def ensemble(self, before: EnsembleRow, selected: Sequence[int]) -> RescoredEnsemble:
        metric, correct = self._vote(before.experts)
        missing = sorted(set(selected) - self.ballots.keys())
        again = (None, None) if missing else self._vote(selected)
        return RescoredEnsemble(
            population=before.population,
            ensemble_size=before.ensemble_size,
            experts=list(before.experts),
            metric=OldAndNew(old=before.metric, new=metric),
            correct=OldAndNew(old=before.correct, new=correct),
            reselected=Reselection(
                experts=list(selected), missing=missing, metric=again[0], correct=again[1]
            ),
        )

    def _vote(self, experts: Sequence[int]) -> tuple[float, int]:
        """Return the held-out metric of a vote, and its right rows; the first expert wins ties."""
        votes = count_votes([self.ballots[each] for each in experts])
        correct = [each.correct for each in votes]
        return self._metric(correct), sum(correct)

    def _metric(self, correct: Sequence[bool]) -> float:
        return task_errors.metric(self.task, self.heldout, correct)


def _judge_run(
    run: Run, task: Task, judges: Executor | None, on_progress: Callable[[int, int], None]
) -> _Judgements:
    rows = {split: _rows(run, split, task) for split in (_SELECTION, _HELDOUT)}
    total = 1 + sum(each.selection_answers > 0 for each in run.candidates)
    rewards, ballots = dict[int, float](), dict[int, Ballot]()
    judged, changed = Counter[str](), Counter[tuple[int, str]]()
    for done, (index, sheets) in enumerate(groupby(run.answers(), attrgetter("candidate")), 1):
        for split, sheet in groupby(sheets, attrgetter("split")):
            answers = tuple(sheet)
            judgements = rescore(answers, rows[split], task, judges=judges)
            old = (Judgement(each.reward, each.vote, each.correct) for each in answers)
            judged[split] += len(answers)
            changed[index, split] = sum(map(ne, old, judgements))
            if split == _SELECTION:
                rewards[index] = mean_reward([each.reward for each in judgements])
            else:
                ballots[index] = Ballot.from_answers(judgements)
        on_progress(done, total)
    return _Judgements(task, rows[_HELDOUT], rewards, ballots, judged, changed)


def rescore(
    answers: Iterable[Answer], rows: Sequence[Row], task: Task, *, judges: Executor | None = None
) -> tuple[Judgement, ...]:
    """Return the judgement of each stored completion, in their order."""
    judge = partial(_judge, rows, task)
    return tuple(map(judge, answers) if judges is None else judges.map(judge, answers))


@retry(
    retry=retry_if_exception_type(EngineError), stop=stop_after_attempt(_ATTEMPTS), reraise=True
)
def _judge(rows: Sequence[Row], task: Task, answer: Answer) -> Judgement:
    if not 0 <= answer.row < len(rows):
        raise InvalidInputError(
            f"an answer is to row {answer.row}, but there are {len(rows)} rows",
            field="answers.row",
        )
    return task_errors.judge(task, rows[answer.row], answer.completion, f"row {answer.row}")


def _rows(run: Run, split: str, task: Task) -> tuple[Row, ...]:
    try:
        return tuple(task.parse(json.loads(row)) for row in run.rows(split))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"the stored rows do not fit the task: column {error.field!r} {error.message}",
            field="task.name",
            remedy="restore the task that the experiment was made with",
        ) from error
