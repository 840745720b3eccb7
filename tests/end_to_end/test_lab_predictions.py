"""Predictions by the evaluators of a lab: separate processes, real Postgres, real Redis."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import psycopg
import pytest
import redis

from tests.faults import error_at
from verification.labs.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def experiment_id(modnorm, lab, write_spec):
    population = {"size": 4, "prefixes": [3, 4], "ensemble_sizes": [1, 3]}
    spec_file = write_spec("predicted", population=population)
    with lab.evaluator("one"):
        ended = modnorm("submit", spec_file, "--server", lab.server, "--wait", "--json")
    return json.loads(ended.stdout)["id"]


@pytest.fixture(scope="module")
def questions(modnorm, lab, experiment_id, tmp_path_factory):
    """The held-out rows of the experiment, as a file of questions."""
    out = tmp_path_factory.mktemp("predicted") / "run"
    modnorm("show", experiment_id, "--server", lab.server, "--out", out)
    return out / "rows" / "heldout.jsonl"


@pytest.fixture(scope="module")
def rows(questions):
    return [json.loads(line) for line in questions.read_text().splitlines()]


@pytest.fixture(scope="module")
def expected(modnorm, lab, experiment_id, questions):
    """What one local engine predicts if all experts answer."""
    asked = ("predict", experiment_id, "--server", lab.server, "--input", questions)
    return modnorm(*asked, "--ask-all", "--local").stdout


class Progress:
    """What the last call was told."""

    def __call__(self, *told):
        self.told = told


def lines(predictions):
    ordered = sorted(predictions, key=lambda each: each.row)
    return "".join(json.dumps(asdict(each)) + "\n" for each in ordered)


def test_predictions_on_the_held_out_rows_are_the_stored_votes(lab, client, experiment_id, rows):
    run = client.run(experiment_id)
    before = client.get(experiment_id), list(client.watch(experiment_id))
    with lab.evaluator("one"), lab.evaluator("two"):
        for ensemble in run.ensembles:
            asked = ensemble.population, ensemble.ensemble_size
            progress = Progress()
            predictions = client.predict(experiment_id, rows, *asked, on_progress=progress)
            answers = {each.row: each.answer for each in predictions}
            assert answers == {vote.row: vote.answer for vote in run.votes(None, *asked)}
            assert progress.told == (len(rows) * ensemble.ensemble_size,) * 2
    assert (client.get(experiment_id), list(client.watch(experiment_id))) == before


def test_a_lab_predicts_what_one_local_engine_does(
    lab, client, modnorm, experiment_id, questions, rows, expected, tmp_path
):
    asked = ("predict", experiment_id, "--server", lab.server, "--input", questions)
    out = tmp_path / "answers.jsonl"
    with lab.evaluator("one"), lab.evaluator("two"):
        modnorm(*asked, "--out", out)
        assert out.read_text() == expected
        assert lines(list(client.predict(experiment_id, rows))) == expected
    newest = next(iter(client.list())).id
    kept = tmp_path / "kept"
    shown = modnorm("show", newest, "--server", lab.server, "--out", kept)
    assert str(kept / "predictions.jsonl") in shown.stdout
    assert (kept / "predictions.jsonl").read_text() == expected
    assert json.loads(expected.splitlines()[0])["skipped"] == 0


def test_a_question_too_long_for_the_model_is_refused_at_once(client, experiment_id, rows):
    long = {**rows[1], "question": "How many? " * 2000}
    with error_at("questions", "row 1: "):
        next(client.predict(experiment_id, [rows[0], long]))


def test_kills_and_a_flushed_broker_change_no_answer(
    lab, client, experiment_id, rows, expected, database_url, broker_url
):
    """The questions in another order are another prediction, with the same answers."""
    reordered = rows[1:] + rows[:1]
    leased = "SELECT id FROM jobs WHERE split = 'questions' AND state = 'leased'"
    with ThreadPoolExecutor(1) as threads, psycopg.connect(database_url) as connection:
        connection.autocommit = True
        answers = threads.submit(lambda: list(client.predict(experiment_id, reordered)))
        with lab.evaluator("victim") as victim:
            wait_until(lambda: connection.execute(leased).fetchall(), "the victim at work")
            victim.kill()
        lab.kill_aggregator()
        with redis.Redis.from_url(broker_url) as broker:
            broker.flushall()
        with lab.evaluator("survivor"):
            predictions = answers.result()
    wanted = [json.loads(line) for line in expected.splitlines()]
    found = {(each.row + 1) % len(rows): asdict(each) for each in predictions}
    for line in wanted:
        assert json.loads(json.dumps({**found[line["row"]], "row": line["row"]})) == line
