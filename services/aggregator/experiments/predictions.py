"""Questions to the experts of a finished run: an experiment that only votes.

Its candidates are the experts and its held-out rows the questions. So jobs, leases, reports,
reuse and events are those of a search. Its `predictions.jsonl` has a line for each question.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlmodel import Session, col, select

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.prediction.ensemble_definition import (
    check_votes,
    require_equal_prompts,
    select_ensemble,
)
from modnorm.services.aggregator.experiments.admission import Admission, stored_rows
from modnorm.services.aggregator.experiments.phases import start_answering
from modnorm.services.aggregator.storage.dialects import insert_rows
from modnorm.services.aggregator.storage.lookups import (
    StoredText,
    find_experiment,
    load_rows,
    load_text,
    lock_experiment,
)
from modnorm.services.aggregator.storage.states import ArtifactKind, ExperimentState
from modnorm.services.aggregator.storage.tables import Candidate, Ensemble, Experiment
from modnorm.spec import DataSpec
from modnorm.spec.experiment import suffixed
from modnorm.tasks import Row, Task
from modnorm.tasks.row_files import Raw, RawRow
from modnorm.tasks.row_loading import parse_question


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions to an ensemble of a finished run."""

    of: str
    """Id of the run."""
    population: int | None
    """N; None for the largest."""
    ensemble_size: int | None
    """K; None for the largest."""
    rows: Sequence[RawRow]
    ask_all: bool
    """Whether experts also answer questions whose vote is settled."""


def admit_questions(session: Session, asked: Questions) -> Admission:
    """Return the inputs of the experiment that answers questions."""
    run = find_experiment(session, asked.of)
    check_votes(run.spec)
    if run.state is not ExperimentState.SUCCEEDED:
        raise PreconditionError(
            f"the experiment is {run.state.lower()}, and only a finished one predicts",
            field="experiment_id",
            remedy="`modnorm watch` waits for its end",
        )
    ensembles = session.exec(select(Ensemble).where(Ensemble.experiment_id == run.id)).all()
    ensemble = select_ensemble(ensembles, asked.population, asked.ensemble_size)
    task = run.task()
    require_equal_prompts(task, load_rows(session, run.heldout_digest), run.prompts_digest)
    questions = stored_rows([_parsed(task, place, raw) for place, raw in asked.rows])
    population = run.spec.population.model_copy(
        update={
            "size": ensemble.population,
            "prefixes": (),
            "ensemble_sizes": (ensemble.ensemble_size,),
            "statistics": "full" if asked.ask_all else "experts",
        }
    )
    heldout = DataSpec(source=f"questions:{questions.digest}")
    spec = run.spec.model_copy(
        update={
            "name": suffixed(run.spec.name, f"questions to {run.id}"),
            "task": run.spec.task.model_copy(update={"heldout": heldout}),
            "population": population,
        }
    )
    selection = load_text(session, ArtifactKind.ROWS, run.selection_digest)
    return Admission(
        spec=spec,
        model_digest=run.model_digest,
        scorer=run.scorer,
        max_tokens=run.max_tokens,
        selection=StoredText(run.selection_digest, selection),
        selection_rows=run.selection_rows,
        heldout=questions,
        heldout_rows=len(asked.rows),
        needs_profile=False,
        profile=None,
        of=run.id,
        experts=ensemble.experts,
    )


def ask_experts(session: Session, experiment: Experiment, of: str, now: float) -> None:
    """Give a new experiment the experts of a finished run, and begin their answers."""
    experiment.scale_map_digest = lock_experiment(session, of).scale_map_digest
    experts = session.exec(
        select(Candidate).where(
            Candidate.experiment_id == of, col(Candidate.index).in_(experiment.ranking)
        )
    )
    rows = [expert.model_dump() | {"experiment_id": experiment.id} for expert in experts]
    insert_rows(session, Candidate, rows)
    start_answering(session, experiment, now)


def _parsed(task: Task, place: str, raw: Raw) -> Row:
    try:
        return parse_question(task, raw, place)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field="questions", remedy=error.remedy) from error
