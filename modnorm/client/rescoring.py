"""A finished experiment judged by another scorer, from the completions that its lab stored."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Literal, TypedDict

from google.protobuf import json_format

from modnorm.client.client import ModnormClient
from modnorm.client.finished import check_succeeded
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.search.ranking import mean_reward
from modnorm.search.rescored_votes import (
    Figure,
    RescoredEnsemble,
    RescoredModel,
    RescoredRankOne,
    rescored_ensembles,
    rescored_rank_one,
)
from modnorm.search.voting import Ballot
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Judgement, Row, Task
from modnorm.tasks.completion_rescoring import rescore
from modnorm.v1 import evaluation_pb2 as evaluation
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto

SCHEMA: Literal["modnorm-rescored-1"] = "modnorm-rescored-1"


@dataclass(frozen=True, slots=True)
class Judged:
    """How many stored answers were judged, and how many got another reward, vote or verdict."""

    total: int
    changed: int


@dataclass(frozen=True, slots=True)
class Rescored:
    """What another scorer makes of a finished experiment."""

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


class RescoredDocument(TypedDict):
    """A `Rescored` as JSON values; like `results.json` it holds no time and no id."""

    schema: str
    spec: Mapping[str, object]
    provenance: Mapping[str, object]
    """Of the experiment: the scorer there is the old one."""
    old_scorer: str
    new_scorer: str
    selection: Mapping[str, object]
    heldout: Mapping[str, object]
    base: Mapping[str, object]
    candidates: list[dict[str, object]]
    rank_1: Mapping[str, object]
    ensembles: list[dict[str, object]]


def check_has_votes(spec: ExperimentSpec) -> None:
    """Make sure that candidates are ranked and vote in the experiment of a spec.

    Raises:
        InvalidInputError: it trains one model.
    """
    if spec.iterative is not None:
        raise InvalidInputError(
            f"{spec.method.name} was trained by the old scorer, step by step, and nothing votes",
            field="run",
            remedy="train anew with the other scorer in task.scorer",
        )


def rescore_experiment(
    client: ModnormClient,
    experiment: experiments.Experiment,
    task: Task,
    *,
    judges: Executor | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Rescored:
    """Judge all stored completions of an experiment anew, rank and vote.

    Args:
        client: Connection to the lab that ran it.
        experiment: The experiment as `get` returns it.
        task: Its task with the new scorer.
        judges: Threads that judge several completions at a time.
        on_progress: Called with the number of models judged and of all models.

    Raises:
        PreconditionError: the experiment has not succeeded, or answers were left out.
        InvalidInputError: it trained one model, or the stored rows do not fit the task.
        EngineError: the task runs programs, and its sandbox fails.
        UnavailableError: the lab, or the sandbox, cannot be reached.
    """
    check_has_votes(spec_from_proto(experiment.spec))
    check_succeeded(experiment)
    found = list(client.candidates(experiment.id))
    _check_complete(found)
    selection = _Split(client, experiment.id, evaluation.SPLIT_SELECTION, task, judges)
    heldout = _Split(client, experiment.id, evaluation.SPLIT_HELDOUT, task, judges)
    models, ballots = [], {}
    for candidate in found:
        model, ballot = _model(candidate, selection, heldout)
        models.append(model)
        if ballot is not None:
            ballots[model.index] = ballot
        on_progress(len(models), len(found))
    base, *candidates = models
    return Rescored(
        old_scorer=experiment.provenance.scorer,
        new_scorer=task.scorer,
        selection=Judged(selection.total, sum(model.changed_selection for model in models)),
        heldout=Judged(heldout.total, sum(model.changed_heldout for model in models)),
        base=base,
        candidates=tuple(candidates),
        rank_1=rescored_rank_one(candidates),
        ensembles=rescored_ensembles(
            experiment.ensembles, candidates, ballots, task, heldout.rows
        ),
    )


def rescored_document(experiment: experiments.Experiment, rescored: Rescored) -> RescoredDocument:
    """Return what the file holds."""
    return RescoredDocument(
        schema=SCHEMA,
        spec=spec_from_proto(experiment.spec).model_dump(mode="json"),
        provenance=json_format.MessageToDict(
            experiment.provenance,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        ),
        old_scorer=rescored.old_scorer,
        new_scorer=rescored.new_scorer,
        selection=asdict(rescored.selection),
        heldout=asdict(rescored.heldout),
        base=asdict(rescored.base),
        candidates=[asdict(candidate) for candidate in rescored.candidates],
        rank_1=asdict(rescored.rank_1),
        ensembles=[asdict(ensemble) for ensemble in rescored.ensembles],
    )


class _Split:
    """The stored answers to one set of rows, judged anew one model at a time."""

    def __init__(
        self,
        client: ModnormClient,
        experiment_id: str,
        split: "evaluation.Split.ValueType",
        task: Task,
        judges: Executor | None,
    ) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._split = split
        self._judges = judges
        self.task = task
        self.rows = _rows(client, experiment_id, split, task)
        self.total = 0

    def judge(self, candidate: int) -> tuple[tuple[Judgement, ...], int]:
        """Return the new judgements in row order, and how many differ from the old ones."""
        answers = list(self._client.answers(self._experiment_id, candidate, self._split))
        judgements = rescore(answers, self.rows, self.task, judges=self._judges)
        self.total += len(answers)
        pairs = zip(map(_old, answers), judgements, strict=True)
        return judgements, sum(old != new for old, new in pairs)


def _model(
    candidate: experiments.Candidate, selection: _Split, heldout: _Split
) -> tuple[RescoredModel, Ballot | None]:
    """Judge one model's answers; the ballot is that of a model with held-out answers."""
    reward = metric = Figure(None, None)
    ballot, changed_selection, changed_heldout = None, 0, 0
    if candidate.HasField("selection_reward"):
        judgements, changed_selection = selection.judge(candidate.index)
        new_reward = mean_reward([judgement.reward for judgement in judgements])
        reward = Figure(candidate.selection_reward, new_reward)
    if candidate.HasField("heldout_metric"):
        judgements, changed_heldout = heldout.judge(candidate.index)
        ballot = Ballot.from_answers(judgements)
        new_metric = heldout.task.metric(heldout.rows, ballot.correct)
        metric = Figure(candidate.heldout_metric, new_metric)
    model = RescoredModel(candidate.index, reward, metric, changed_selection, changed_heldout)
    return model, ballot


def _old(answer: evaluation.Answer) -> Judgement:
    vote = answer.vote if answer.HasField("vote") else None
    return Judgement(answer.reward, vote, answer.correct)


def _rows(
    client: ModnormClient, experiment_id: str, split: "evaluation.Split.ValueType", task: Task
) -> tuple[Row, ...]:
    """Return stored rows in the schema of the task.

    Raises:
        InvalidInputError: they do not fit it.
    """
    kind = {
        evaluation.SPLIT_SELECTION: experiments.ARTIFACT_KIND_SELECTION_ROWS,
        evaluation.SPLIT_HELDOUT: experiments.ARTIFACT_KIND_HELDOUT_ROWS,
    }[split]
    lines = client.artifact(experiment_id, kind).decode().split("\n")
    try:
        return tuple(task.parse(json.loads(line)) for line in lines)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"the stored rows do not fit the task: column {error.field!r} {error.message}",
            field="task.name",
            remedy="bring back the task that the experiment was made with",
        ) from error


def _check_complete(candidates: Sequence[experiments.Candidate]) -> None:
    """Make sure that every answer is there which another scorer may need."""
    stopped = sum(one.state == experiments.CANDIDATE_STATE_STOPPED for one in candidates)
    partial = sum(
        one.heldout_attempts > 0 and not one.HasField("heldout_metric") for one in candidates
    )
    if stopped or partial:
        raise PreconditionError(
            f"{stopped} candidates were stopped early and {partial} experts left rows out, which "
            "another scorer might rank or vote otherwise",
            field="population.statistics",
            remedy="set that to full in its spec and run it once more in the same directory or "
            "lab: what is complete is taken over",
        )
