"""A finished run judged by another scorer, from its stored completions."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import groupby
from operator import attrgetter, ne
from typing import Any

from modnorm.analysis.answers import BASE_INDEX
from modnorm.analysis.candidates import CandidateRecord
from modnorm.analysis.run import Run
from modnorm.analysis.run_data import BaseRow
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.search.ranking import mean_reward, rank, select_experts
from modnorm.search.voting import Ballot, count_votes
from modnorm.tasks import Judgement, Row, Task, task_errors
from modnorm.tasks.task_errors import rescore

SCHEMA = "modnorm-rescored-1"
_SELECTION, _HELDOUT = "selection", "heldout"


def rescore_run(
    run: Run,
    task: Task,
    *,
    judges: Executor | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, Any]:
    """Judge all completions of a finished run anew, rank and vote.

    Returns:
        The content of the file. Figures by the `old` and the `new` scorer are None if unknown.
        The experts that the new scorer selects vote only if none is `missing`: if all of them
        answered the held-out rows.
    """
    _check_complete(run)
    rows = {split: _rows(run, split, task) for split in (_SELECTION, _HELDOUT)}
    candidates, rewards = tuple(run.candidates), dict[int, float]()
    ballots: dict[int, Ballot] = {}
    judged: Counter[str] = Counter()
    changed: Counter[tuple[int, str]] = Counter()
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
        on_progress(done, 1 + len(candidates))  # those whose scoring failed have no answers

    def metric(correct: Sequence[bool]) -> float:
        return task_errors.metric(task, rows[_HELDOUT], correct)

    def model(index: int, before: BaseRow | CandidateRecord) -> dict[str, Any]:
        ballot = ballots.get(index)
        alone = None if ballot is None else metric(ballot.correct)
        return {
            "index": index,
            "selection_reward": {"old": before.selection_reward, "new": rewards.get(index)},
            "heldout_metric": {"old": before.heldout_metric, "new": alone},
            "changed_selection": changed[index, _SELECTION],
            "changed_heldout": changed[index, _HELDOUT],
        }

    def vote(experts: Sequence[int]) -> tuple[float, int]:
        correct = [each.correct for each in count_votes([ballots[one] for one in experts])]
        return metric(correct), sum(correct)

    base, models = model(BASE_INDEX, run.base), [model(each.index, each) for each in candidates]
    new = [rewards.get(each.index) for each in candidates]
    first = rank([each.selection_reward for each in candidates], len(candidates))[0]
    again = rank(new, len(candidates))[0]
    selected = select_experts(
        new,
        sorted({each.population for each in run.ensembles}),
        sorted({each.ensemble_size for each in run.ensembles}),
    )
    ensembles = []
    for each in run.ensembles:
        now, correct = vote(each.experts)
        experts = selected[each.population, each.ensemble_size]
        missing = sorted(set(experts) - ballots.keys())
        voted = (None, None) if missing else vote(experts)
        ensembles.append(
            {
                "population": each.population,
                "ensemble_size": each.ensemble_size,
                "experts": list(each.experts),
                "metric": {"old": each.metric, "new": now},
                "correct": {"old": each.correct, "new": correct},
                "reselected": {
                    "experts": list(experts),
                    "missing": missing,
                    "metric": voted[0],
                    "correct": voted[1],
                },
            }
        )
    return {
        "schema": SCHEMA,
        "spec": run.spec.model_dump(mode="json"),
        "provenance": run.provenance,
        "old_scorer": str(run.provenance["scorer"]),
        "new_scorer": task.scorer,
        **{
            split: {
                "total": judged[split],
                "changed": sum(each[f"changed_{split}"] for each in (base, *models)),
            }
            for split in (_SELECTION, _HELDOUT)
        },
        "base": base,
        "candidates": models,
        "rank_1": {
            "index": first,
            "metric": models[first]["heldout_metric"],
            "reselected": again,
            "reselected_metric": models[again]["heldout_metric"]["new"],
        },
        "ensembles": ensembles,
    }


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
    if run.spec.iterative is not None:
        raise InvalidInputError(
            f"{run.spec.method.name} trained its model by the old scorer, and no ensemble votes",
            field="run",
            remedy="train again with the other scorer in task.scorer",
        )
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
