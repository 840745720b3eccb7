"""A finished run judged by another scorer, from its stored completions."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter

from modnorm.analysis.answers import BASE_INDEX, AnswerRecord
from modnorm.analysis.candidates import CandidateRecord
from modnorm.analysis.run import Run
from modnorm.analysis.run_data import BaseRow
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.search.ranking import mean_reward
from modnorm.search.rescored_votes import (
    OldAndNew,
    RescoredEnsemble,
    RescoredModel,
    RescoredRankOne,
    rescored_ensembles,
    rescored_rank_one,
)
from modnorm.search.voting import Ballot
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Judgement, Row, Task, task_errors
from modnorm.tasks.task_errors import rescore

SCHEMA = "modnorm-rescored-1"
_SPLITS = _SELECTION, _HELDOUT = "selection", "heldout"


@dataclass(frozen=True, slots=True)
class Judged:
    """How many stored answers were judged, and how many got another reward, vote or verdict."""

    total: int
    changed: int


@dataclass(frozen=True, slots=True)
class Rescored:
    """A finished run judged by another scorer."""

    old_scorer: str
    new_scorer: str
    selection: Judged
    """Answers to the selection rows, those of the base included."""
    heldout: Judged
    base: RescoredModel
    candidates: tuple[RescoredModel, ...]
    """The whole population in candidate order."""
    rank_1: RescoredRankOne
    ensembles: tuple[RescoredEnsemble, ...]
    """By N, then by K."""


def check_has_votes(spec: ExperimentSpec) -> None:
    """Make sure that candidates are ranked and vote in the experiment of a spec."""
    if spec.iterative is not None:
        raise InvalidInputError(
            f"{spec.method.name} trained its model by the old scorer, and no ensemble votes",
            field="run",
            remedy="train again with the other scorer in task.scorer",
        )


def rescore_run(
    run: Run,
    task: Task,
    *,
    judges: Executor | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Rescored:
    """Judge all completions of a finished run anew, rank and vote."""
    check_has_votes(run.spec)
    _check_complete(run)
    judging = _Judging(task, {split: _rows(run, split, task) for split in _SPLITS}, judges)
    candidates = tuple(run.candidates)
    total = 1 + len(candidates)
    for candidate, sheets in groupby(run.answers(), key=attrgetter("candidate")):
        for split, answers in groupby(sheets, key=attrgetter("split")):
            judging.judge(candidate, split, tuple(answers))
        on_progress(len(judging.models), total)
    base = judging.model(BASE_INDEX, run.base)
    judged = [judging.model(each.index, each) for each in candidates]
    if len(judging.models) < total:
        on_progress(total, total)  # those whose scoring failed have no answers
    models = (base, *judged)
    return Rescored(
        old_scorer=str(run.provenance["scorer"]),
        new_scorer=task.scorer,
        selection=Judged(judging.totals[_SELECTION], sum(m.changed_selection for m in models)),
        heldout=Judged(judging.totals[_HELDOUT], sum(m.changed_heldout for m in models)),
        base=base,
        candidates=tuple(judged),
        rank_1=rescored_rank_one(judged),
        ensembles=rescored_ensembles(
            run.ensembles, judged, judging.ballots, task, judging.rows[_HELDOUT]
        ),
    )


def rescored_document(run: Run, rescored: Rescored) -> dict[str, object]:
    """Return the content of the file: like `results.json` without times and ids."""
    return {
        "schema": SCHEMA,
        "spec": run.spec.model_dump(mode="json"),
        "provenance": run.provenance,
        **asdict(rescored),
    }


class _Judging:
    """Judges completions again, one model and split at a time, with small results."""

    def __init__(
        self, task: Task, rows: Mapping[str, tuple[Row, ...]], judges: Executor | None
    ) -> None:
        self._task = task
        self._judges = judges
        self._rewards: dict[int, float] = {}
        self._changed: Counter[tuple[int, str]] = Counter()
        self.rows = rows
        self.models: set[int] = set()
        """Models whose answers were judged."""
        self.ballots: dict[int, Ballot] = {}
        """Ballots of the models that answered the held-out rows, by candidate."""
        self.totals: Counter[str] = Counter()
        """Answers judged, by split."""

    def judge(self, candidate: int, split: str, answers: Sequence[AnswerRecord]) -> None:
        """Judge the answers of one model on one split, in row order."""
        judgements = rescore(answers, self.rows[split], self._task, judges=self._judges)
        old = (Judgement(each.reward, each.vote, each.correct) for each in answers)
        pairs = zip(old, judgements, strict=True)
        self.models.add(candidate)
        self.totals[split] += len(answers)
        self._changed[candidate, split] = sum(before != after for before, after in pairs)
        if split == _SELECTION:
            self._rewards[candidate] = mean_reward([each.reward for each in judgements])
        else:
            self.ballots[candidate] = Ballot.from_answers(judgements)

    def model(self, candidate: int, old: BaseRow | CandidateRecord) -> RescoredModel:
        """Return one model by both scorers."""
        ballot = self.ballots.get(candidate)
        metric = None
        if ballot is not None:
            metric = task_errors.metric(self._task, self.rows[_HELDOUT], ballot.correct)
        return RescoredModel(
            candidate,
            OldAndNew(old.selection_reward, self._rewards.get(candidate)),
            OldAndNew(old.heldout_metric, metric),
            self._changed[candidate, _SELECTION],
            self._changed[candidate, _HELDOUT],
        )


def _rows(run: Run, split: str, task: Task) -> tuple[Row, ...]:
    """Return stored rows in the schema of the task."""
    try:
        return tuple(task.parse(json.loads(row)) for row in run.rows(split))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"the stored rows do not fit the task: column {error.field!r} {error.message}",
            field="task.name",
            remedy="restore the task that the experiment was made with",
        ) from error


def _check_complete(run: Run) -> None:
    """Refuse a run that lacks answers which another scorer may need."""
    experts = {index for ensemble in run.ensembles for index in ensemble.experts}
    stopped = sum(each.reward_lower is not None for each in run.candidates)
    partial = sum(each.index in experts and each.heldout_metric is None for each in run.candidates)
    if stopped or partial:
        raise PreconditionError(
            f"{stopped} candidates were stopped early and {partial} experts skipped rows; "
            "another scorer might rank or vote differently",
            field="population.statistics",
            remedy="set it to full in the spec and run that again in the same directory or lab, "
            "which reuses complete results",
        )
