"""The store of predictions: creation, resumption, results, removal."""

import json

import pytest
from sqlalchemy import text

from modnorm.errors import NotFoundError, PreconditionError
from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction, RankedVotes
from modnorm.services.aggregator.experiments import predictions
from modnorm.services.aggregator.experiments.predictions import KEPT_SECONDS, AskedQuestions
from modnorm.services.aggregator.experiments.removal import remove_ended, remove_experiment
from modnorm.services.aggregator.storage.lab_counts import LabCountStore
from modnorm.services.aggregator.storage.states import (
    ExperimentState,
    FailureKind,
    JobState,
    Split,
)
from modnorm.services.aggregator.web.run_queries import list_experiments
from tests.faults import error_at
from tests.services.aggregator.world import LEASE_SECONDS, World, synthetic_answers

ROWS = 9
TABLES = ("experiments", "candidates", "jobs", "answers", "ensembles", "votes", "events")


@pytest.fixture
def experiment_id(world):
    made = world.select()
    world.work(made)
    assert world.state(made) == "SUCCEEDED"
    return made


@pytest.fixture
def ask(experiment_id):
    """Return a request for predictions."""

    def make(rows=ROWS, *, ask_all=False, population=None, size=None, experiment=experiment_id):
        questions = [(f"row {row}", {"question": f"Say {row}."}) for row in range(rows)]
        return AskedQuestions(experiment, population, size, questions, ask_all)

    return make


def contents(world: World) -> dict[str, list[str]]:
    with world.database.read() as session:
        return {
            table: sorted(map(repr, session.connection().execute(text(f"SELECT * FROM {table}"))))
            for table in TABLES
        }


def jobs_of(world, change):
    return [world.claim(job_id) for job_id in change.pending]


def expected(world, experiment_id, *, ask_all=False):
    """What the experts of the largest ensemble answer, one after another."""
    (ensemble,) = world.stores.experiments.get(experiment_id).ensembles[-1:]
    experts = json.loads(ensemble.experts)
    votes = RankedVotes(experts, ROWS, ask_all=ask_all)
    predictions: list[Prediction] = []
    for expert in experts:
        predictions += votes.add(
            {
                each.row: ExpertAnswer(expert, each.vote, each.completion, each.tokens, False)
                for each in synthetic_answers(expert, ROWS)
            }
        )
    return predictions


@pytest.mark.parametrize("ask_all", [False, True])
def test_the_experts_answer_in_any_order(world, experiment_id, ask, ask_all):
    before = contents(world)
    change = world.stores.predictions.open(ask(ask_all=ask_all))
    assert len(change.pending) == 3
    reader = world.stores.predictions.reader(change.experiment_id)
    claims = jobs_of(world, change)
    assert [claim.job.split for claim in claims] == [Split.QUESTIONS] * 3
    read = []
    for claim in (claims[2], claims[0], claims[1]):
        world.jobs.report(world.report_of(claim))
        reading = reader.read()
        read += reading.predictions
        assert reading.answers_total == 3 * ROWS
        assert reading.complete == (claim is claims[1])
    assert read == expected(world, experiment_id, ask_all=ask_all)
    assert reading.state is ExperimentState.SUCCEEDED
    assert reading.answers_done == 3 * ROWS
    after = contents(world)
    assert all(set(before[table]) <= set(after[table]) for table in TABLES)
    assert after["votes"] == before["votes"]


def test_an_expert_skips_what_better_experts_have_settled(world, experiment_id, ask):
    change = world.stores.predictions.open(ask())
    for job_id in change.pending[:2]:
        claim = world.claim(job_id)
        assert not claim.skipped
        world.jobs.report(world.report_of(claim))
    settled = world.stores.predictions.reader(change.experiment_id).read().predictions
    claim = world.claim(change.pending[2])
    assert list(claim.skipped) == sorted(each.row for each in settled)
    assert 0 < len(settled) < ROWS
    answers = [
        each
        for each in synthetic_answers(claim.candidate.seed, ROWS)
        if each.row not in claim.skipped
    ]
    world.jobs.report(world.report_of(claim, answers))
    reading = world.stores.predictions.reader(change.experiment_id).read()
    assert list(reading.predictions) == expected(world, experiment_id)


def test_votes_are_settled_by_the_best_experts_only(world, ask):
    """A worse expert that answers first lets no better expert skip a question."""
    change = world.stores.predictions.open(ask())
    for place in (2, 1, 0):
        claim = world.claim(change.pending[place])
        assert not claim.skipped
        world.jobs.report(world.report_of(claim))


def test_an_equal_request_is_the_same_prediction(world, ask):
    store = world.stores.predictions
    first = store.open(ask())
    assert store.open(ask()).experiment_id == first.experiment_id
    assert store.open(ask()).pending == ()
    others = (ask(ROWS - 1), ask(ask_all=True), ask(size=1))
    assert len({first.experiment_id, *(store.open(other).experiment_id for other in others)}) == 4
    world.work(first.experiment_id)
    assert store.open(ask()).pending == ()
    assert store.reader(first.experiment_id).read().complete


def test_a_paused_prediction_resumes_with_what_is_finished(world, experiment_id, ask):
    store = world.stores.predictions
    change = store.open(ask())
    done, leased, _ = change.pending
    world.jobs.report(world.report_of(world.claim(done)))
    claim = world.claim(leased)
    store.pause(change.experiment_id)
    assert world.beat(claim).cancel
    assert world.state(change.experiment_id) == "CANCELLED"
    resumed = store.open(ask())
    assert resumed.pending == change.pending[1:]
    # The worker had finished in the meantime, and nobody has claimed the job since.
    world.jobs.report(world.report_of(claim))
    world.work(change.experiment_id)
    reading = store.reader(change.experiment_id).read()
    assert list(reading.predictions) == expected(world, experiment_id)
    store.pause(change.experiment_id)
    assert world.state(change.experiment_id) == "SUCCEEDED"


def test_a_failed_prediction_says_why_and_is_tried_again(world, experiment_id, ask):
    store = world.stores.predictions
    change = store.open(ask())
    claim = world.claim(change.pending[1])
    world.jobs.fail(claim.job.id, claim.job.token, FailureKind.CANDIDATE, "not finite", "mend it")
    reading = store.reader(change.experiment_id).read()
    assert reading.state is ExperimentState.FAILED
    assert (
        reading.error == f"expert {claim.job.candidate} could not answer the questions: not finite"
    )
    assert reading.remedy == "mend it"
    assert world.state(experiment_id) == "SUCCEEDED"
    assert store.open(ask()).pending == change.pending
    world.work(change.experiment_id)
    assert store.reader(change.experiment_id).read().complete


def test_a_silent_worker_costs_an_attempt(world, ask):
    change = world.stores.predictions.open(ask())
    world.claim(change.pending[0])
    world.now += LEASE_SECONDS + 1
    assert world.jobs.expired() == change.pending[:1]
    reaped = world.jobs.reap(change.pending[0])
    assert reaped.job.state is JobState.PENDING
    assert reaped.pending == change.pending[:1]


def test_predictions_are_in_no_list(world, experiment_id, ask):
    world.stores.predictions.open(ask())
    counts = LabCountStore(world.database, lease_seconds=LEASE_SECONDS).count()
    assert sum(counts.experiments.values()) == 1
    assert counts.open_jobs[JobState.PENDING, Split.QUESTIONS] == 3
    listed = world.stores.experiments.page(10, None)
    assert [experiment.id for experiment, _ in listed] == [experiment_id]
    with world.database.read() as session:
        shown = list_experiments(session, None, 0, 10)
    assert [experiment.id for experiment in shown] == [experiment_id]


def test_old_predictions_are_removed(world, ask):
    store, before = world.stores.predictions, contents(world)
    ended, paused, running = (store.open(ask(rows)) for rows in (3, 4, 5))
    for claim in jobs_of(world, ended):
        answers = synthetic_answers(claim.candidate.seed, 3)
        world.jobs.report(world.report_of(claim, answers))
    store.pause(paused.experiment_id)
    world.now += KEPT_SECONDS - 1
    store.open(ask(3))  # its last request counts
    world.now += 2
    store.remove_old()
    with pytest.raises(NotFoundError):
        store.reader(paused.experiment_id)
    assert store.reader(ended.experiment_id).read().complete
    world.now += KEPT_SECONDS
    store.remove_old()
    assert store.reader(running.experiment_id)
    store.pause(running.experiment_id)
    world.now += KEPT_SECONDS + 1
    store.remove_old()
    assert contents(world) == before


def test_a_prediction_that_another_process_removes_stops_no_removal(world, ask, monkeypatch):
    store = world.stores.predictions
    opened = [store.open(ask(size)).experiment_id for size in (1, 2)]
    for one in opened:
        store.pause(one)
    world.now += KEPT_SECONDS + 1
    removed = []

    def remove_both(session, _):
        """Remove the other one too, as another aggregator could between two transactions."""
        for one in opened:
            remove_experiment(session, one)
            removed.append(one)

    monkeypatch.setattr(predictions, "remove_experiment", remove_both)
    store.remove_old()
    assert removed == opened


def test_what_cannot_be_predicted_is_refused(world, ask):
    store = world.stores.predictions
    with pytest.raises(NotFoundError, match="no experiment 'nothing'"):
        store.open(ask(experiment="nothing"))
    with pytest.raises(NotFoundError, match="no ensemble N=2"):
        store.open(ask(population=2))
    live = world.select("live")
    with pytest.raises(PreconditionError, match="the experiment is selecting"):
        store.open(ask(experiment=live))
    wrong = AskedQuestions(ask().experiment_id, None, None, [("row 0", {"target": 1})], False)
    with error_at("questions", "row 0, column 'question'"):
        store.open(wrong)


def test_an_experiment_that_is_removed_meanwhile_gets_no_prediction(world, ask, monkeypatch):
    def remove(*_):
        """Remove the experiment between its reading and the storing of the prediction."""
        with world.database.write() as session:
            assert remove_ended(session, ask().experiment_id, world.now + 1)

    monkeypatch.setattr(predictions, "require_equal_prompts", remove)
    with pytest.raises(NotFoundError):
        world.stores.predictions.open(ask())
    assert not any(contents(world).values())


def test_an_experiment_that_was_removed_and_submitted_again_predicts_anew(
    world, experiment_id, ask
):
    change = world.stores.predictions.open(ask())
    for claim in jobs_of(world, change):
        world.jobs.report(world.report_of(claim))
    assert world.state(change.experiment_id) == "SUCCEEDED"
    with world.database.write() as session:
        assert remove_ended(session, experiment_id, world.now + 1)
    world.now += 1
    assert world.select() == experiment_id
    world.work(experiment_id)
    again = world.stores.predictions.open(ask())
    assert len(again.pending) == 3
    assert world.state(again.experiment_id) == "VOTING"
