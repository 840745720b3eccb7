"""Predictions of a lab: the experiment that is asked for, its file, errors."""

import json
import time
from hashlib import sha256

import pytest

from modnorm.errors import PreconditionError
from modnorm.prediction.ranked_votes import Prediction, prediction_line
from modnorm.v1 import experiment_pb2 as messages
from tests.faults import error_at

QUESTIONS = [{"numbers": [number], "target": number} for number in range(7)]
SUCCEEDED = messages.EXPERIMENT_STATE_SUCCEEDED
FAILED, CANCELLED = messages.EXPERIMENT_STATE_FAILED, messages.EXPERIMENT_STATE_CANCELLED


class Lab:
    """Predicts the target of each question; each new request id is a new experiment."""

    def __init__(self):
        self.requests = []
        self.stored = {}
        self.hash_seconds = 0.0
        self.ends = [SUCCEEDED]
        """How the experiments end, by their order."""

    def create(self, request, context):
        self.requests.append(request)
        time.sleep(self.hash_seconds)
        if request.request_id not in self.stored:
            made = messages.Experiment(id=f"e{len(self.stored)}")
            made.state = messages.EXPERIMENT_STATE_VOTING
            self.stored[request.request_id] = made
        return messages.CreateExperimentResponse(experiment=self.stored[request.request_id])

    def experiment(self, experiment_id):
        return next(one for one in self.stored.values() if one.id == experiment_id)

    def get(self, request, context):
        return messages.GetExperimentResponse(experiment=self.experiment(request.id))

    def watch(self, request, context):
        made = self.experiment(request.id)
        made.state = self.ends[int(made.id[1:])]
        made.error = "expert 3 could not answer" if made.state == FAILED else ""
        for cursor, done in enumerate((0, 2), 1):
            progress = messages.Progress(jobs_done=done, jobs_total=2)
            yield messages.WatchExperimentResponse(
                cursor=cursor, state=made.state, progress=progress
            )

    @property
    def file(self):
        rows = [json.loads(row) for row in self.requests[0].questions.rows]
        return b"".join(
            prediction_line(Prediction(number, str(row["target"]), None, None, (), 2, ()))
            for number, row in enumerate(rows)
        )

    def files(self, request, context):
        digest = sha256(self.file).hexdigest()
        named = messages.RunFile(name="predictions.jsonl", size=len(self.file), digest=digest)
        return messages.ListRunFilesResponse(files=[named])

    def chunks(self, request, context):
        yield messages.GetRunFileResponse(chunk=self.file[request.offset :])


@pytest.fixture
def lab():
    return Lab()


@pytest.fixture
def target(serve, servicer, lab, tmp_path, monkeypatch):
    monkeypatch.setenv("MODNORM_CACHE_DIR", str(tmp_path / "cache"))
    return serve(
        servicer(
            CreateExperiment=lab.create,
            GetExperiment=lab.get,
            WatchExperiment=lab.watch,
            ListRunFiles=lab.files,
            GetRunFile=lab.chunks,
        )
    )


@pytest.fixture
def predict(connect, target):
    def answers(questions=QUESTIONS, **options):
        return list(connect(target).predict("e1", iter(questions), 20, 5, **options))

    return answers


def test_predictions_come_in_the_order_of_the_questions(predict, lab):
    told = []
    found = predict(on_progress=lambda *one: told.append(one))
    assert [(each.row, each.answer) for each in found] == [(row, str(row)) for row in range(7)]
    assert told == [(0, 14), (14, 14)]
    (request,) = lab.requests
    asked = request.questions
    assert (asked.of, asked.population, asked.ensemble_size) == ("e1", 20, 5)
    assert [json.loads(text) for text in asked.rows] == QUESTIONS


def test_questions_may_wait_for_a_model_that_the_lab_has_to_hash(connect, target, lab):
    lab.hash_seconds = 1.5
    assert len(list(connect(target, timeout=1.0).predict("e1", QUESTIONS))) == 7


def test_equal_questions_are_one_experiment_and_others_another(predict, lab):
    predict()
    predict()
    lab.ends.append(SUCCEEDED)
    predict(QUESTIONS[:3])
    first, second, _ = (request.request_id for request in lab.requests)
    assert first == second
    assert len(lab.stored) == 2


@pytest.mark.parametrize(
    ("end", "words"), [(FAILED, "expert 3 could not answer"), (CANCELLED, "e0 is cancelled")]
)
def test_one_that_did_not_succeed_is_asked_again(predict, lab, end, words):
    lab.ends = [end, SUCCEEDED]
    with pytest.raises(PreconditionError, match=words):
        predict()
    for _ in range(2):
        assert len(predict()) == len(QUESTIONS)
    assert len(lab.stored) == 2


@pytest.mark.parametrize(
    ("questions", "words"),
    [
        (QUESTIONS[0], "one mapping.*list of mappings"),
        ([[1, 2]], "questions"),
        ([], "no questions"),
        ([{"numbers": float("nan")}], "row 0: not JSON"),
        ([{"numbers": [1]}, {"numbers": object()}], "row 1: not JSON"),
    ],
)
def test_what_is_no_question_is_refused_before_a_call(connect, questions, words):
    with error_at("questions", words):
        connect("127.0.0.1:1").predict("e1", questions)
