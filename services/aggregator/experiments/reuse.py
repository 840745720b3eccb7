"""Reuse of finished evaluations, by content.

A candidate is a function of its descriptor, and its answers depend on few other things. The
content key of a job is the digest of them all. A new job takes the result of any finished job with
its key: another N, K list, name, method or held-out set changes no key. Results are copied, so
the removal of an experiment takes nothing from others. Two experiments that evaluate a key at the
same time both evaluate it.

The database of the experiment is searched. An embedded lab has one in each run directory, so it
also searches a file of the cache directory (`storage.evaluation_cache`).

All functions work inside a caller's write transaction that has locked the experiment.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import ColumnElement, bindparam, update
from sqlalchemy import select as select_columns
from sqlmodel import Session, col, select

from modnorm.errors import ModnormError
from modnorm.files import json_digest
from modnorm.geometry.scale_map import ScaleMap
from modnorm.services.aggregator.storage.database import evaluation_cache
from modnorm.services.aggregator.storage.dialects import insert_rows
from modnorm.services.aggregator.storage.evaluation_cache import RESULT, Evaluation
from modnorm.services.aggregator.storage.lookups import is_candidate_of_job, load_rows, load_text
from modnorm.services.aggregator.storage.tables import (
    AnswerSheet,
    Candidate,
    Experiment,
    Job,
    JobState,
    Split,
)
from modnorm.tasks.columns import prompts_digest
from modnorm.tasks.task_errors import render_prompts

_KEYS_AT_A_TIME = 500
_SHEETS_AT_A_TIME = 64
"""Answer sheets held in memory at once."""
_JOBS, _CANDIDATES = Job.metadata.tables["jobs"], Job.metadata.tables["candidates"]
_RESOLVE = (
    update(_CANDIDATES)
    .where(
        _CANDIDATES.c.experiment_id == bindparam("experiment"),
        _CANDIDATES.c.index == bindparam("candidate"),
    )
    .values(coefficients=bindparam("resolved"), normaliser=bindparam("factor"))
)
_FINISH = (
    update(_JOBS)
    .where(_JOBS.c.id == bindparam("job"))
    .values(state=JobState.DONE, **{name: bindparam(f"its_{name}") for name in RESULT})
)
ItemT = TypeVar("ItemT")


class NewJob(NamedTuple):
    """A pending job."""

    id: str
    candidate: int
    key: str
    """Its content key; empty if it has none."""


class _Reused(NamedTuple):
    """A pending job and a finished evaluation with its key."""

    job: NewJob
    evaluation: Evaluation
    source: str
    """Id of the finished job; empty if the evaluation is in the cache."""

    @property
    def sheet(self) -> str:
        """Name of its answer sheet: by job in the database, by content key in the cache."""
        return self.source or self.job.key


def content_keys(
    session: Session, experiment: Experiment, split: Split, candidates: Collection[int]
) -> Mapping[int, str]:
    """Return the content key of each candidate's job; none without prompts.

    A key is the digest of: tenant; model digest; task, scorer and completion cap; digests of rows
    and prompts; split; engine settings; and the candidate. A candidate is its noise
    scheme, seed, radius, digest of the trained state, generator, active tensors and rank of its
    scale map, and its coefficients if they are resolved. The unperturbed model has no noise.
    """
    digest, _ = experiment.rows_of(split)
    if not candidates:
        return {}
    try:
        rows = load_rows(session, digest)
        prompts = prompts_digest(render_prompts(experiment.task(), rows, f"{split} row"))
    except ModnormError:  # the phase reports it
        return {}
    task, engine = experiment.spec.task, experiment.spec.engine.model_dump(mode="json")
    shared = json_digest(
        [
            [experiment.tenant, experiment.model_digest, engine],
            [task.name, task.declaration, experiment.scorer, experiment.max_tokens],
            [digest, prompts, split],
        ]
    )
    query = select(Candidate).where(
        Candidate.experiment_id == experiment.id,
        col(Candidate.index).between(min(candidates), max(candidates)),
    )
    maps: dict[str, str] = {}
    keys = {}
    for one in session.exec(query):
        if one.scale_map_digest not in maps:
            maps[one.scale_map_digest] = _noise_digest(session, one.scale_map_digest)
        scales = maps[one.scale_map_digest]
        noise = [scales, one.noise, one.seed, one.radius] if scales else []
        generator = experiment.generator_digest if one.needs_proposal else ""
        coefficients = (one.coefficients or b"").hex()
        keys[one.index] = json_digest([shared, noise, one.lineage, generator, coefficients])
    return keys


def _noise_digest(session: Session, scale_map_digest: str) -> str:
    """Return the digest of what a scale map says about noise; empty if it perturbs nothing."""
    scale_map = ScaleMap.from_json(load_text(session, scale_map_digest))
    active = [[one.name, one.shape, one.norm, one.scale] for one in scale_map.active]
    return json_digest([scale_map.rank, active]) if active else ""


def reuse_evaluations(session: Session, experiment: Experiment, jobs: Sequence[NewJob]) -> None:
    """Finish the new jobs whose evaluations exist."""
    if not experiment.spec.reuse:
        return
    session.flush()
    chunks = _chunks(_found(session, jobs), _SHEETS_AT_A_TIME)
    reused = sum(_finish(session, experiment, chunk) for chunk in chunks)
    experiment.jobs_done += reused
    session.flush()
    for row in list(session.identity_map.values()):  # the few that the session holds as objects
        if isinstance(row, Job | Candidate) and row.experiment_id == experiment.id:
            session.refresh(row)


def evaluations_of(
    session: Session, job_ids: Collection[str]
) -> Mapping[str, tuple[Evaluation, bytes]]:
    """Return the evaluations of finished jobs and their packed answers, by content key."""
    wanted = col(Job.id).in_(job_ids)
    found = {key: (source, one) for key, source, one in _stored(session, wanted)}
    sheets = _sheets(session, [source for source, _ in found.values()])
    return {key: (one, sheets[source]) for key, (source, one) in found.items() if source in sheets}


def _found(session: Session, jobs: Sequence[NewJob]) -> Sequence[_Reused]:
    """Return the evaluations that have the keys of new jobs."""
    keys = {job.key for job in jobs if job.key}
    found: dict[str, tuple[Evaluation, str]] = {}
    cache = evaluation_cache(session)
    if cache is not None:
        found = {key: (one, "") for key, one in cache.find(keys).items()}
    for chunk in _chunks(sorted(keys), _KEYS_AT_A_TIME):
        for key, source, one in _stored(session, col(Job.content_key).in_(chunk)):
            found[key] = one, source
    return [_Reused(job, *found[job.key]) for job in jobs if job.key in found]


def _stored(
    session: Session, wanted: ColumnElement[bool]
) -> Iterator[tuple[str, str, Evaluation]]:
    """Yield content key, id and evaluation of finished jobs."""
    query = (
        select_columns(
            _JOBS.c.content_key,
            _JOBS.c.id,
            _CANDIDATES.c.coefficients,
            _CANDIDATES.c.normaliser,
            *(_JOBS.c[name] for name in RESULT),
        )
        .join(_CANDIDATES, is_candidate_of_job())
        .where(wanted, _JOBS.c.state == JobState.DONE, _JOBS.c.content_key != "")
        .order_by(_JOBS.c.id)
    )
    for key, job_id, coefficients, normaliser, *result in session.execute(query):
        yield (
            key,
            job_id,
            Evaluation(dict(zip(RESULT, result, strict=True)), coefficients, normaliser),
        )


def _sheets(session: Session, job_ids: Collection[str]) -> dict[str, bytes]:
    query = select(AnswerSheet.job_id, AnswerSheet.content)
    return dict(session.exec(query.where(col(AnswerSheet.job_id).in_(job_ids))).all())


def _finish(session: Session, experiment: Experiment, reused: Sequence[_Reused]) -> int:
    """Finish pending jobs with copies of evaluations that still exist; return their number."""
    sheets = _sheets(session, [one.source for one in reused if one.source])
    cache = evaluation_cache(session)
    cached = [one.job.key for one in reused if not one.source]
    if cache is not None and cached:
        sheets |= cache.sheets(cached)
    complete = [one for one in reused if one.sheet in sheets]
    if not complete:
        return 0
    copies = [{"job_id": one.job.id, "content": sheets[one.sheet]} for one in complete]
    insert_rows(session, AnswerSheet, copies)
    finished = [
        {
            "job": one.job.id,
            "experiment": experiment.id,
            "candidate": one.job.candidate,
            "resolved": one.evaluation.coefficients,
            "factor": one.evaluation.normaliser,
            **{f"its_{name}": value for name, value in one.evaluation.result.items()},
        }
        for one in complete
    ]
    for statement in (_RESOLVE, _FINISH):
        session.connection().execute(statement, finished)
    return len(complete)


def _chunks(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    return (items[start : start + size] for start in range(0, len(items), size))
