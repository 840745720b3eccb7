"""Experiments of the database as runs of the page."""

import pytest
from sqlalchemy.event import listen, remove
from sqlmodel import select

from modnorm.errors import ModnormError, NotFoundError, PreconditionError
from modnorm.services.aggregator.storage.tables import Ensemble
from modnorm.services.aggregator.web.lab_catalog import remaining_seconds
from modnorm.services.common.access import ANYONE, Caller, _caller, set_caller
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.web.queries import PAGE_LINES
from modnorm.web.sources import FINISHED
from modnorm.wire.tokens import Role


@pytest.fixture(autouse=True)
def anyone():
    """Calls of anyone in each test; no caller after it."""
    token = _caller.set(ANYONE)
    yield
    _caller.reset(token)


def test_a_finished_experiment_has_its_results(world, catalog, finished):
    run = catalog.run(finished)
    assert run.status == FINISHED
    document, record = run.results.document, world.experiments.get(finished)
    assert [each["metric"] for each in document["ensembles"]] == [
        each.metric for each in record.ensembles
    ]
    assert document["candidates"]["total"] == 4
    scored = [each for each in run.results.candidates if each.selection_reward is not None]
    assert len(scored) == document["candidates"]["scored"]
    best = max(scored, key=lambda each: each.selection_reward)
    base = document["base"]["selection_reward"]
    assert best.gain == pytest.approx(best.selection_reward - base)


def test_a_live_experiment_shows_its_progress_and_workers(world, catalog):
    experiment = world.select()
    world.now += 10.0
    world.report(world.claim_next(experiment))
    world.now += 10.0
    world.report(world.claim_next(experiment))
    world.claim_next(experiment)
    run = catalog.run(experiment)
    progress = run.status.progress
    assert progress is not None
    assert (run.status.state, run.status.live, run.status.finished) == ("selecting", True, False)
    assert (progress.unit, progress.done, progress.total) == ("jobs", 2, 5)
    assert progress.workers == {"w": 1}
    with pytest.raises(PreconditionError, match="selecting"):
        _ = run.results


def test_a_failed_experiment_tells_why(world, catalog):
    experiment = world.create()
    world.experiments.fail(experiment, "no such model", "name another")
    run = catalog.run(experiment)
    assert (run.status.state, run.status.live) == ("failed", False)
    assert run.status.error == "no such model (name another)"


def test_the_list_shows_the_newest_first_with_figures_of_finished_runs(world, catalog, finished):
    world.now += 1.0
    other = world.select("other", name="second")
    runs, _ = catalog.runs(1)
    assert [run.name for run in runs] == [other, finished]
    assert runs[0].headline is None
    headline = runs[1].headline
    ensembles = catalog.run(finished).results.document["ensembles"]
    assert headline.vote == ensembles[-1]["metric"]
    assert list(headline.interval) == ensembles[-1]["interval"]
    assert headline.base == catalog.run(finished).results.document["base"]["heldout_metric"]


def test_the_list_reads_one_ensemble_of_a_run(world, catalog, request):
    """A page lists 50 runs, each of which may have hundreds."""
    created = world.select(prefixes=[3, 4], ensemble_sizes=[1, 2, 3])
    world.work(created)
    read = []

    def note(ensemble, _context):
        read.append((ensemble.population, ensemble.ensemble_size))

    listen(Ensemble, "load", note)
    request.addfinalizer(lambda: remove(Ensemble, "load", note))
    (run,), _ = catalog.runs(1)
    assert read == [(4, 3)]
    assert run.headline.vote == world.experiments.get(created).ensembles[-1].metric


def test_a_metric_that_is_not_the_share_of_right_rows_has_no_interval(world, catalog, finished):
    with world.database.write() as session:
        for row in session.exec(select(Ensemble)):
            row.metric = abs(row.correct - 1) / row.rows
    (run,), _ = catalog.runs(1)
    assert run.name == finished
    assert run.headline is not None
    assert run.headline.interval is None


def test_the_list_has_pages(world, catalog):
    for number in range(PAGE_LINES + 1):
        world.now += 1.0
        world.create(f"request {number}")
    (first, has_second), (second, has_third) = catalog.runs(1), catalog.runs(2)
    assert (len(first), has_second) == (PAGE_LINES, True)
    assert (len(second), has_third) == (1, False)
    assert not {run.name for run in first} & {run.name for run in second}


def test_a_tenant_sees_its_own_experiments_only(world, catalog, finished):
    admission = world.admission(world.spec())
    theirs = world.experiments.create("theirs", admission, "them").experiment.id
    set_caller(Caller("t", "them", frozenset({Role.READ})))
    assert [run.name for run in catalog.runs(1)[0]] == [theirs]
    with pytest.raises(NotFoundError) as hidden:
        catalog.run(finished)
    with pytest.raises(NotFoundError) as unknown:
        catalog.run("0" * 36)
    assert str(hidden.value).replace(finished, "") == str(unknown.value).replace("0" * 36, "")
    with pytest.raises(ModnormError):
        catalog.compare([theirs, finished])
    set_caller(Caller("o", "us", frozenset({Role.OPERATE})))
    assert {run.name for run in catalog.runs(1)[0]} == {theirs, finished}


def event(state, seconds, done, total=10):
    message = experiments.WatchExperimentResponse(
        state=state, progress=experiments.Progress(jobs_done=done, jobs_total=total)
    )
    message.time.FromMicroseconds(round(seconds * 1e6))
    return message


def test_the_remaining_time_follows_from_the_rate_of_the_phase():
    selecting, voting = (
        experiments.EXPERIMENT_STATE_SELECTING,
        experiments.EXPERIMENT_STATE_VOTING,
    )
    events = [event(selecting, 0, 9), event(voting, 100, 0), event(voting, 120, 4)]
    assert remaining_seconds(events, 120.0) == pytest.approx(30.0)
    assert remaining_seconds(events, 125.0) == pytest.approx(25.0)
    assert remaining_seconds(events, 500.0) == 0.0
    assert remaining_seconds(events[:2], 120.0) is None
