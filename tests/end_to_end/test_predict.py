"""Predictions of a finished run's ensembles, by the command line, in Python and by a server."""

import json
import os
import signal

import openai
import pytest

from modnorm import load_run, predict
from modnorm.errors import ConflictError, InvalidInputError, NotFoundError
from modnorm.prediction.predictor import BasePlace
from verification.labs.fork_server import Launch
from verification.labs.waiting import wait_until


@pytest.fixture
def questions(finished, tmp_path):
    """The held-out rows of the run, as a file of questions."""
    path = tmp_path / "questions.jsonl"
    path.write_bytes((finished / "rows" / "heldout.jsonl").read_bytes())
    return path


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_predictions_on_the_held_out_rows_are_the_votes_of_the_run(modnorm, finished, questions):
    run = load_run(finished)
    for ensemble in run.ensembles[::3]:
        asked = ("--n", ensemble.population, "--k", ensemble.ensemble_size)
        ended = modnorm("predict", finished, *asked, "--input", questions, "--ask-all")
        votes = run.votes(None, *ensemble.place)
        for predicted, vote in zip(lines(ended.stdout), votes, strict=True):
            assert predicted["answer"] == vote.answer
            assert [each["vote"] for each in predicted["experts"]] == list(vote.votes)
            assert [each["expert"] for each in predicted["experts"]] == list(ensemble.experts)
            completions = [
                next(iter(run.answers(expert, "heldout", vote.row))).completion
                for expert in ensemble.experts
            ]
            assert [each["completion"] for each in predicted["experts"]] == completions


def test_the_short_circuit_changes_no_answer_and_the_file_is_written(
    modnorm, finished, questions, tmp_path
):
    out = tmp_path / "answers.jsonl"
    ended = modnorm("predict", finished, "--input", questions, "--out", out)
    assert not ended.stdout
    told = modnorm("predict", finished, "--input", questions, "--json")
    assert json.loads(told.stdout) == lines(out.read_text())
    assert out.read_text().startswith('{"row": 0, "answer": ')
    votes = load_run(finished).votes(None, 4, 2)
    assert [each["answer"] for each in lines(out.read_text())] == [vote.answer for vote in votes]


def test_a_run_of_the_base_predicts(modnorm, write_spec, questions, tmp_path):
    spec = write_spec("base", method={"name": "base"}, population={"size": 1})
    modnorm("run", spec, "--out", tmp_path / "run")
    ended = modnorm("predict", tmp_path / "run", "--input", questions)
    votes = load_run(tmp_path / "run").votes()
    assert [each["answer"] for each in lines(ended.stdout)] == [vote.answer for vote in votes]
    manifest = tmp_path / "base.json"
    modnorm("export", tmp_path / "run", "--manifest", "--out", manifest)
    assert modnorm("predict", manifest, "--input", questions).stdout == ended.stdout


def test_an_ensemble_predicts_in_python(finished, questions):
    run, rows = load_run(finished), lines(questions.read_text())
    votes = [vote.answer for vote in run.votes(None, 4, 2)]
    assert [each.answer for each in predict(run, rows[:3], 4, 2)] == votes[:3]
    with pytest.raises(InvalidInputError, match="row 0, column 'question'"):
        predict(run, [{"numbers": [1, 2]}])
    with pytest.raises((InvalidInputError, ConflictError)):
        predict(run, rows, place=BasePlace("no-such-model"))


def test_what_cannot_be_predicted_is_refused(modnorm, finished, questions, tmp_path):
    absent = modnorm("predict", finished, "--k", 5, "--input", questions, check=False)
    assert absent.returncode == 2
    assert absent.stderr.startswith("error: k: the run has no ensemble K=5")
    questions.write_text('{"numbers": [1, 2]}\n')
    out = tmp_path / "answers.jsonl"
    wrong = modnorm("predict", finished, "--input", questions, "--out", out, check=False)
    assert wrong.returncode == 2
    assert f"{questions}, line 1, column 'question'" in wrong.stderr
    assert not out.exists()
    with pytest.raises(NotFoundError):
        load_run(finished).ensemble(4, 5)


def test_the_server_answers_held_out_questions_with_the_votes_of_the_run(
    forks, environment, finished, tmp_path
):
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    launch = Launch(
        "modnorm",
        environment,
        log=str(err),
        arguments=["serve", str(finished), "--k", "2", "--port", "0", "--json"],
        folder=os.getcwd(),  # noqa: PTH109 - tests change it
        output=str(out),
        ended=str(tmp_path / "ended"),
    )
    process = forks.launch(launch)
    try:
        wait_until(
            lambda: not process.alive or (out.exists() and out.read_text().endswith("}\n")),
            "the server told its address",
        )
        announced = json.loads(out.read_text())
        assert announced["models"] == ["ensemble", "expert-1", "expert-2"]
        run = load_run(finished)
        ensemble = run.ensemble(4, 2)
        with openai.OpenAI(base_url=announced["url"], api_key="none") as client:
            for row, vote in zip(run.rows("heldout")[:3], run.votes(None, 4, 2), strict=False):
                answer = client.chat.completions.create(
                    model="ensemble", messages=[], extra_body={"row": json.loads(row)}
                )
                voted = json.loads(answer.to_json())["modnorm"]
                assert voted["answer"] == vote.answer
                assert voted["experts"][0]["expert"] == ensemble.experts[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()
