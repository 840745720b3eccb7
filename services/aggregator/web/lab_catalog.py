"""The experiments of the database as runs of the page, as far as the caller may see them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy import func
from sqlmodel import Session, col, select, tuple_

from modnorm.analysis.comparison import ComparisonRow, compare_runs
from modnorm.analysis.run import Run, load_run
from modnorm.analysis.uncertainty import accuracy_interval
from modnorm.search.answers import BASE_INDEX
from modnorm.services.aggregator.experiments.messages import event_message
from modnorm.services.aggregator.experiments.run_directories import RunDirectories
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.tables import (
    TERMINAL,
    Ensemble,
    Event,
    Experiment,
    ExperimentState,
    Job,
    JobState,
    Split,
)
from modnorm.services.common.access import current_caller
from modnorm.v1 import experiment_pb2
from modnorm.web.queries import PAGE_LINES
from modnorm.web.sources import FINISHED, Headline, Progress, Status, ViewedRun, unknown_run
from modnorm.wire.run_messages import extent, with_remedy


def headlines(session: Session, ids: Sequence[str]) -> Mapping[str, Headline]:
    """Return the figures of those experiments that have finished, by id."""
    bases = {
        experiment_id: (metric, correct)
        for experiment_id, metric, correct in session.exec(
            select(Job.experiment_id, Job.metric, Job.correct).where(
                col(Job.experiment_id).in_(ids),
                Job.split == Split.HELDOUT,
                Job.candidate == BASE_INDEX,
            )
        )
    }
    place = (col(Ensemble.population), col(Ensemble.ensemble_size))
    largest = (
        select(Ensemble.experiment_id, *map(func.max, place))
        .where(col(Ensemble.experiment_id).in_(ids))
        .group_by(col(Ensemble.experiment_id))
    )
    named = tuple_(col(Ensemble.experiment_id), *place)
    figures = {}
    for top in session.exec(select(Ensemble).where(named.in_(largest))):
        base, right = bases.get(top.experiment_id, (None, 0))
        figures[top.experiment_id] = Headline(
            base, accuracy_interval(base, top.rows, right), top.metric, top.result.interval
        )
    return figures


_PACE_EVENTS = 200
"""Last events that the rate of a phase is computed from."""


def status_of(database: Database, experiment: Experiment) -> Status:
    """Return the state of an experiment, with its progress while it is live."""
    state, live = experiment.state, experiment.state not in TERMINAL
    has_succeeded = state is ExperimentState.SUCCEEDED
    if has_succeeded and not experiment.asked_experts:
        return FINISHED
    return Status(
        state="finished" if has_succeeded else state.lower(),
        live=live,
        error=with_remedy(experiment.error, experiment.remedy),
        progress=_progress(database, experiment.id) if live else None,
    )


def _progress(database: Database, experiment_id: str) -> Progress:
    """Return the progress of an experiment as of the last event."""
    last_events = (
        select(Event)
        .where(Event.experiment_id == experiment_id)
        .order_by(col(Event.cursor).desc())
        .limit(_PACE_EVENTS)
    )
    lease_holders = (
        select(Job.worker, func.count())
        .where(
            Job.experiment_id == experiment_id,
            col(Job.split).in_(Split),  # lets the query use an index
            Job.state == JobState.LEASED,
        )
        .group_by(col(Job.worker))
        .order_by(col(Job.worker))
    )
    with database.read() as session:
        messages = [event_message(event) for event in reversed(session.exec(last_events).all())]
        workers = dict(session.exec(lease_holders).all())
    last = messages[-1]
    counts, (done, total, unit) = last.progress, extent(last)
    return Progress(
        unit=unit,
        done=done,
        total=total,
        failed=counts.jobs_failed,
        best_reward=counts.best_reward if counts.HasField("best_reward") else None,
        threshold_reward=counts.threshold_reward if counts.HasField("threshold_reward") else None,
        remaining=remaining_seconds(messages, time.time()),
        waits_for=last.waits_for,
        message=last.message,
        workers=workers,
    )


class LabCatalog:
    """The experiments that the present caller may see, newest first; implements `Catalog`."""

    def __init__(self, database: Database, runs: RunDirectories) -> None:
        self._database = database
        self._runs = runs

    def runs(self, page: int) -> tuple[Sequence[ViewedRun], bool]:
        start, scope = (page - 1) * PAGE_LINES, current_caller().scope
        newest = col(Experiment.create_time).desc(), col(Experiment.id).desc()
        query = select(Experiment).order_by(*newest)
        if scope is not None:
            query = query.where(Experiment.tenant == scope)
        with self._database.read() as session:
            experiments = session.exec(query.offset(start).limit(PAGE_LINES + 1)).all()
            shown = experiments[:PAGE_LINES]
            figures = headlines(session, [each.id for each in shown])
        runs = [self._run(each, figures.get(each.id)) for each in shown]
        return runs, len(experiments) > PAGE_LINES

    def run(self, name: str) -> ViewedRun:
        """Return an experiment by id; those of other tenants do not exist for the caller."""
        with self._database.read() as session:
            experiment = session.get(Experiment, name)
        if experiment is None or current_caller().scope not in {None, experiment.tenant}:
            raise unknown_run(name)
        return self._run(experiment, None)

    def compare(self, names: Sequence[str]) -> Sequence[ComparisonRow]:
        """Set finished experiments side by side."""
        return compare_runs([self.run(name).results for name in names])

    def _run(self, experiment: Experiment, headline: Headline | None) -> ViewedRun:
        status = status_of(self._database, experiment)
        return ViewedRun(
            experiment.id,
            experiment.spec.model_dump(mode="json"),
            status,
            partial(self._results, experiment),
            headline if status.finished else None,  # it may have ended after it was read
        )

    def _results(self, experiment: Experiment) -> Run:
        """Return its results, under the name that people gave it; written when first needed."""
        run, name = load_run(self._runs.of(experiment.id)), experiment.id[:8]
        given = experiment.spec.name
        return replace(run, name=f"{given} ({name})" if given else name)


def remaining_seconds(
    events: Sequence[experiment_pb2.WatchExperimentResponse], now: float
) -> float | None:
    """Return the seconds until the present phase ends, at its rate since the last engine start."""
    first = last = events[-1]
    for event in reversed(events):
        if event.state != last.state or event.progress.engine_stage:
            break
        first = event
    (before, _, _), (done, total, _) = extent(first), extent(last)
    start, end = (each.time.ToMicroseconds() / 1e6 for each in (first, last))
    if done <= before or end <= start:
        return None
    rate = (done - before) / (end - start)
    return max(0.0, (total - done) / rate - (now - end))
