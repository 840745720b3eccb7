"""The files of a finished experiment, written from the database."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from sqlalchemy import case
from sqlalchemy import select as select_columns
from sqlmodel import col, select

from modnorm.analysis.export import write_run
from modnorm.analysis.run_data import CandidateRow, RowsRecord, RunData
from modnorm.analysis.run_files import LINEAGE, PREDICTIONS, PROFILE, SCALE_MAP, SPEC, rows_file
from modnorm.errors import InvalidInputError
from modnorm.files import encode_json, replaced_file, write_file
from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction, RankedVotes, prediction_line
from modnorm.search.answers import SPLITS, AnswerRecord, answer_fields
from modnorm.search.voting import RowVote
from modnorm.services.aggregator.experiments.experiment_store import (
    CandidateJobs,
    ExperimentRecord,
    ExperimentStore,
)
from modnorm.services.aggregator.experiments.messages import PROVENANCE, event_message
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.tables import (
    AnswerSheet,
    Experiment,
    Job,
    JobState,
    Split,
    Vote,
)
from modnorm.services.common.status_servicer import timestamp
from modnorm.tasks import Task, get_stored_task
from modnorm.tasks.row_loading import ReadableRow, readable_rows
from modnorm.tasks.task_errors import shared_prompts
from modnorm.wire.answer_sheets import unpack_answers
from modnorm.wire.run_messages import phase_of, with_remedy

_ALL = 2**31 - 1
_COUNTED = tuple(field.name for field in fields(RowVote))
_VOTES = Vote.metadata.tables["votes"]
_NO_JOB = Job(id="", experiment_id="", candidate=0, split=Split.HELDOUT)
"""The job of a candidate that is no expert."""
_SHEETS = 16
"""Answer sheets in memory at a time."""
_BLOCK = 2_048
"""Questions whose answers are in memory at once; each block reads every sheet again."""


def write_directory(directory: Path, database: Database, record: ExperimentRecord) -> None:
    """Write the files of a finished experiment into an empty directory."""
    started = time.monotonic()
    experiment, results = record.experiment, ExperimentStore(database)
    if experiment.asked_experts:
        _write_votes(directory, results, experiment)
        return
    task = _task(experiment)
    rows = {split: _rows(results, experiment, Split(split)) for split in SPLITS}
    questions = {split: readable_rows(task, each) for split, each in rows.items()}
    candidates = results.candidates(experiment.id)
    shared = overlap(task, rows["selection"], rows["heldout"])
    run = _run_data(results, record, candidates, ensemble_votes(database, record), shared)
    write_file(directory / SPEC, encode_json(run.spec))
    (directory / "rows").mkdir()
    texts = {rows_file(split): "".join(f"{row}\n" for row in rows[split]) for split in SPLITS}
    for name, text in {**texts, **_texts(results, record)}.items():
        if text:
            write_file(directory / name, text.encode())
    write_run(
        directory,
        run,
        ((each.candidate.index, each.candidate.descriptor) for each in candidates),
        _answers(database, experiment.id, questions),
        started=started,
    )


def _write_votes(directory: Path, results: ExperimentStore, experiment: Experiment) -> None:
    """Write the files of a finished experiment that only votes into an empty directory."""
    write_file(directory / SPEC, encode_json(experiment.spec.model_dump(mode="json")))
    rows = directory / rows_file(Split.HELDOUT)
    rows.parent.mkdir()
    text = results.artifact(experiment.heldout_digest)
    write_file(rows, f"{text}\n".encode())
    with replaced_file(directory / PREDICTIONS) as file:
        for prediction in _predictions(results, experiment):
            file.write(prediction_line(prediction))


def _predictions(results: ExperimentStore, experiment: Experiment) -> Iterator[Prediction]:
    """Yield the predictions in the order of the questions, in bounded memory."""
    ranking, count = experiment.asked_experts, experiment.heldout_rows
    for start in range(0, count, _BLOCK):
        block = range(start, min(start + _BLOCK, count))
        votes = RankedVotes(len(ranking), block, ask_all=True)
        predictions: list[Prediction] = []
        for expert in ranking:
            answers = {
                each.row: ExpertAnswer(
                    expert, each.vote, each.completion, each.tokens, each.truncated
                )
                for each in results.answers(experiment.id, expert, Split.QUESTIONS)
                if each.row in block
            }
            predictions += votes.add(answers)
        yield from sorted(predictions, key=lambda each: each.row)


def _rows(results: ExperimentStore, experiment: Experiment, split: Split) -> tuple[str, ...]:
    digest, count = experiment.rows_of(split)
    return tuple(results.artifact(digest).split("\n")) if count else ()


def _texts(results: ExperimentStore, record: ExperimentRecord) -> Mapping[str, str]:
    """Return scale map, profile and lineage by file name, those that the run has."""
    experiment, found = record.experiment, {}
    if experiment.scale_map_digest:
        found[SCALE_MAP] = results.artifact(experiment.scale_map_digest)
    if experiment.profile_digest:
        found[PROFILE] = results.artifact(experiment.profile_digest)
    if record.states:
        reported = [state.lineage for state in record.states if state.reported]
        found[LINEAGE] = results.lineage(experiment.id, *reported).to_json()
    return found


def _answers(
    database: Database, experiment_id: str, questions: Mapping[str, Sequence[ReadableRow]]
) -> Iterator[AnswerRecord]:
    """Yield answers by candidate, then split, then row."""
    order = case({split: place for place, split in enumerate(SPLITS)}, value=col(Job.split))
    query = (
        select(Job.candidate, Job.split, AnswerSheet.content)
        .join(AnswerSheet, col(AnswerSheet.job_id) == col(Job.id))
        .where(Job.experiment_id == experiment_id, col(Job.split).in_(SPLITS))
        .order_by(col(Job.candidate), order)
        .execution_options(yield_per=_SHEETS)
    )
    with database.read() as session:
        for candidate, split, content in session.exec(query):
            for answer in unpack_answers(content):
                question = questions[split][answer.row]
                yield AnswerRecord(
                    *answer_fields(answer),
                    candidate=candidate,
                    split=str(split),
                    prompt=question.prompt,
                    gold=question.gold,
                )


def ensemble_votes(
    database: Database, record: ExperimentRecord
) -> Mapping[tuple[int, int], Sequence[RowVote]]:
    """Return the votes of each (N, K), in row order."""
    votes: dict[tuple[int, int], list[RowVote]] = defaultdict(list)
    query = (
        select_columns(*_VOTES.c["population", "ensemble_size", *_COUNTED])
        .where(_VOTES.c.experiment_id == record.experiment.id)
        .order_by(*_VOTES.primary_key)
        .execution_options(yield_per=_BLOCK)
    )
    with database.read() as session:
        for population, size, *counted in session.execute(query):
            votes[population, size].append(RowVote(*counted))
    return votes


def _run_data(
    results: ExperimentStore,
    record: ExperimentRecord,
    candidates: Sequence[CandidateJobs],
    votes: Mapping[tuple[int, int], Sequence[RowVote]],
    shared: int,
) -> RunData:
    experiment, spec = record.experiment, record.experiment.spec
    events, _ = results.events(experiment.id, 0, _ALL)
    phases: dict[str, float] = {}
    """Seconds in each state, and on starts of engines."""
    for event, following in pairwise(map(event_message, events)):
        name = phase_of(event)
        seconds = (following.time.ToMicroseconds() - event.time.ToMicroseconds()) / 1e6
        phases[name] = phases.get(name, 0.0) + seconds
    created, ended = experiment.create_time, experiment.end_time or 0.0
    inputs = {name: getattr(experiment, name) for name in PROVENANCE}
    return RunData(
        spec=spec.model_dump(mode="json"),
        provenance={name: "" if value is None else value for name, value in inputs.items()},
        data={
            split: RowsRecord(
                source=named.source,
                config=named.config,
                split=named.split,
                revision=inputs[f"{split}_revision"] or named.revision,
                offset=named.offset,
                rows=inputs[f"{split}_rows"],
                digest=inputs[f"{split}_digest"],
            )
            for split, named in (
                ("selection", spec.task.selection),
                ("heldout", spec.task.heldout),
            )
        },
        overlap=shared,
        candidates=[candidate_row(each) for each in candidates[1:]],
        base=candidate_row(candidates[0]),
        ensembles=record.ensembles,
        votes=votes,
        states=record.states,
        timings={
            "experiment": experiment.id,
            "request": experiment.request_id,
            "created": timestamp(created).ToJsonString(),
            "ended": timestamp(ended).ToJsonString(),
            "phases": phases,
        },
    )


def overlap(task: Task | None, selection: Sequence[str], heldout: Sequence[str]) -> int:
    """Count the held-out rows that have the prompt of a selection row."""
    if task is None:
        known = set(selection)
        return sum(row in known for row in heldout)
    parsed = ([json.loads(row) for row in s] for s in (heldout, selection))
    return len(shared_prompts(task, *parsed))


def _task(experiment: Experiment) -> Task | None:
    """Return the task with its default scorer; None where it is not installed here."""
    named = experiment.spec.task
    try:
        return get_stored_task(named.name, declaration=named.declaration)
    except InvalidInputError:
        return None


def candidate_row(jobs: CandidateJobs) -> CandidateRow:
    """Return a candidate with the results of its jobs."""
    job, heldout = jobs.selection, jobs.heldout or _NO_JOB
    done = job.state is JobState.DONE
    return CandidateRow(
        index=jobs.candidate.index,
        seed=jobs.candidate.seed,
        state="scored" if done else "failed",
        selection_reward=job.metric if done else None,
        heldout_metric=heldout.metric,
        selection_tokens=job.tokens,
        selection_answers=_stored_answers(job),
        selection_correct=job.correct,
        selection_valid=job.valid,
        selection_truncated=job.truncated,
        heldout_answers=_stored_answers(heldout),
        heldout_valid=heldout.valid,
        heldout_truncated=heldout.truncated,
        attempts=job.attempts,
        worker=job.worker,
        seconds=_seconds(job),
        reused=job.is_reused,
        heldout_attempts=heldout.attempts,
        heldout_worker=heldout.worker,
        heldout_seconds=_seconds(heldout),
        heldout_reused=heldout.is_reused,
        error=with_remedy(job.error, job.remedy) if job.state is JobState.FAILED else "",
        environment=_environment(job.environment),
        heldout_environment=_environment(heldout.environment),
    )


def _stored_answers(job: Job) -> int:
    """Return the number of stored answers; before a job is done, `answers_done` is progress."""
    return job.answers_done if job.state is JobState.DONE else 0


def _seconds(job: Job) -> float:
    return job.switch_seconds + job.generate_seconds + job.score_seconds


@lru_cache(maxsize=256)
def _environment(text: str) -> Mapping[str, str]:
    """Return the settings of an environment; most candidates share few."""
    return dict(json.loads(text))
