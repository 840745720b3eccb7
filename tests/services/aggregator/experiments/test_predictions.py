"""Experiments that only vote: answers, reuse, failures, refusals."""

import json
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from modnorm.errors import ConflictError, NotFoundError, PreconditionError
from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction, RankedVotes, read_predictions
from modnorm.services.aggregator.experiments.run_directories import RunDirectories
from modnorm.services.aggregator.remove_old import remove_ended
from modnorm.services.aggregator.storage.tables import FailureKind, Split
from modnorm.v1.experiment_pb2 import Questions
from tests.faults import error_at
from tests.services.aggregator.world import World, synthetic_answers

ROWS = 9
TABLES = ("experiments", "candidates", "jobs", "answers", "ensembles", "events")


@pytest.fixture
def run_id(world):
    world.reuse = True
    made = world.select()
    world.work(made)
    assert world.state(made) == "SUCCEEDED"
    return made


@pytest.fixture
def ask(world, run_id):
    """Store an experiment that asks questions; return its id and its pending jobs."""

    def make(request="asked", rows=ROWS, *, population=None, size=None, of=run_id):
        asked = Questions(
            of=of,
            population=population,
            ensemble_size=size,
            rows=[json.dumps({"question": f"Say {row}."}) for row in range(rows)],
        )
        experiments = world.experiments
        record = experiments.create(request, experiments.admit_questions(asked))
        created = record.experiment.id
        return SimpleNamespace(experiment_id=created, pending=world.pending(created))

    return make


@pytest.fixture
def predictions(world, tmp_path):
    """Return the predictions of an experiment, from its file."""

    def read(experiment_id):
        place = RunDirectories(tmp_path / "runs", world.database).of(experiment_id)
        assert len((place / "rows" / "heldout.jsonl").read_text().splitlines()) == ROWS
        return list(read_predictions(place / "predictions.jsonl"))

    return read


def contents(world: World) -> dict[str, list[str]]:
    with world.database.read() as session:
        return {
            table: sorted(map(repr, session.connection().execute(text(f"SELECT * FROM {table}"))))
            for table in TABLES
        }


def expected(world, run_id, *, size=3):
    """What all experts of an ensemble answer."""
    ensembles = world.experiments.get(run_id).ensembles
    (experts,) = (one.experts for one in ensembles if one.ensemble_size == size)
    votes = RankedVotes(len(experts), range(ROWS), ask_all=True)
    found: list[Prediction] = []
    for expert in experts:
        found += votes.add(
            {
                each.row: ExpertAnswer(expert, each.vote, each.completion, each.tokens, False)
                for each in synthetic_answers(expert, ROWS)
            }
        )
    return sorted(found, key=lambda each: each.row)


def test_the_experts_answer_in_any_order(world, run_id, ask, predictions):
    before = contents(world)
    change = ask()
    claims = [world.claim(job_id) for job_id in change.pending]
    assert [claim.job.split for claim in claims] == [Split.QUESTIONS] * 3
    for claim in (claims[2], claims[0], claims[1]):
        world.report(claim)
    assert world.state(change.experiment_id) == "SUCCEEDED"
    assert predictions(change.experiment_id) == expected(world, run_id)
    after = contents(world)
    assert all(set(before[table]) <= set(after[table]) for table in TABLES)
    assert after["ensembles"] == before["ensembles"]


def test_answers_are_reused_by_content(world, run_id, ask, predictions):
    change = ask()
    assert ask().experiment_id == change.experiment_id
    world.work(change.experiment_id)
    again = ask("again")
    assert not again.pending
    assert predictions(again.experiment_id) == expected(world, run_id)
    single = ask("of the best", size=1)
    assert not single.pending
    assert predictions(single.experiment_id) == expected(world, run_id, size=1)


def test_a_failed_expert_fails_it_and_says_why(world, run_id, ask):
    change = ask()
    claim = world.claim(change.pending[1])
    world.fail(claim, FailureKind.CANDIDATE, "not finite", "mend it")
    failed = world.experiments.get(change.experiment_id).experiment
    assert failed.state == "FAILED"
    assert failed.error == (
        f"expert {claim.job.candidate} could not answer the questions: not finite"
    )
    assert failed.remedy == "mend it"
    assert world.state(run_id) == "SUCCEEDED"


def test_what_cannot_be_asked_is_refused(world, run_id, ask):
    with pytest.raises(NotFoundError, match="no experiment 'nothing'"):
        ask(of="nothing")
    with pytest.raises(NotFoundError, match="no ensemble N=2"):
        ask(population=2)
    live = world.select("live", size=5)
    with pytest.raises(PreconditionError, match="the experiment is selecting"):
        ask(of=live)
    wrong = Questions(of=run_id, rows=['{"target": 1}'])
    with error_at("questions", "row 0, column 'question'"):
        world.experiments.admit_questions(wrong)
    ask()
    with pytest.raises(ConflictError):
        ask(rows=ROWS - 1)


def test_a_run_that_is_removed_meanwhile_is_not_asked(world, run_id):
    experiments = world.experiments
    asked = Questions(of=run_id, rows=['{"question": "Say 0."}'])
    admission = experiments.admit_questions(asked)
    with world.database.write() as session:
        assert remove_ended(session, run_id, world.now + 1)
    with pytest.raises(NotFoundError):
        experiments.create("asked", admission)
    assert not any(contents(world).values())
