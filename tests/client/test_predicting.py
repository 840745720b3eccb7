"""Predictions of a lab: batches, progress, connections that break, errors."""

import json

import grpc
import pytest

from modnorm.client import predicting
from modnorm.errors import PreconditionError, UnavailableError
from modnorm.v1 import prediction_pb2 as messages
from modnorm.wire.status import to_status
from tests.faults import error_at

QUESTIONS = [{"numbers": [number], "target": number} for number in range(7)]


class Lab:
    """Predicts the target of each question, last question first; breaks as told."""

    def __init__(self):
        self.requests = []
        self.breaks_after = {}
        """Number of predictions after which a call ends, and how, by the number of the call."""

    def predict(self, request, context):
        self.requests.append(request)
        count = len(request.questions)
        limit, end = self.breaks_after.get(len(self.requests), (count, None))
        yield progress(0, count)
        rows = list(reversed(range(count)))[request.after :]
        for sent, row in enumerate(rows):
            if sent == limit:
                break
            target = str(json.loads(request.questions[row])["target"])
            yield messages.PredictResponse(prediction=messages.Prediction(row=row, answer=target))
        if end is not None:
            context.abort(end, "broken")
        yield progress(2 * count, count)


def progress(done, rows):
    told = messages.PredictionProgress(answers_done=done, answers_total=2 * rows)
    return messages.PredictResponse(progress=told)


@pytest.mark.parametrize("questions", [QUESTIONS[0], [[1, 2]], []])
def test_what_is_no_list_of_rows_is_refused(connect, questions):
    with error_at("questions") as raised:
        list(connect("127.0.0.1:1").predict("e1", questions))
    assert raised.value.remedy


@pytest.fixture
def lab():
    return Lab()


@pytest.fixture
def predict(connect, serve, servicer, lab):
    target = serve(servicer(Predict=lab.predict))

    def answers(questions=QUESTIONS, **options):
        found = list(connect(target).predict("e1", iter(questions), 20, 5, **options))
        assert all(each.answer == str(each.row) for each in found)
        return [each.row for each in found]

    return answers


def test_predictions_come_as_the_lab_sends_them(predict, lab):
    told = []
    assert predict(ask_all=True, on_progress=lambda *one: told.append(one)) == [
        6,
        5,
        4,
        3,
        2,
        1,
        0,
    ]
    assert told == [(0, 14), (14, 14)]
    (request,) = lab.requests
    assert (request.experiment_id, request.population, request.ensemble_size) == ("e1", 20, 5)
    assert request.ask_all
    assert [json.loads(text) for text in request.questions] == QUESTIONS


def test_long_lists_are_asked_in_batches(predict, lab, monkeypatch):
    monkeypatch.setattr(predicting, "MAX_QUESTIONS", 3)
    told = []
    assert predict(on_progress=lambda *one: told.append(one)) == [2, 1, 0, 5, 4, 3, 6]
    assert [len(request.questions) for request in lab.requests] == [3, 3, 1]
    assert told == [(0, 14), (6, 14), (6, 14), (12, 14), (12, 14), (14, 14)]
    monkeypatch.setattr(predicting, "MAX_BYTES", 2 * len(lab.requests[0].questions[0]) + 6)
    lab.requests.clear()
    assert sorted(predict()) == list(range(7))
    assert [len(request.questions) for request in lab.requests] == [2, 2, 2, 1]


@pytest.mark.parametrize("end", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, None])
def test_a_broken_stream_continues_after_what_was_received(predict, lab, end):
    lab.breaks_after = {1: (2, end), 2: (0, end), 3: (4, end)}
    assert predict() == [6, 5, 4, 3, 2, 1, 0]
    assert [request.after for request in lab.requests] == [0, 2, 2, 6]


def test_errors_of_the_lab_are_raised(connect, serve, servicer):
    def refuse(request, context):
        error = PreconditionError("expert 3 could not answer", field="questions")
        status = to_status(error)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, error.message)
        yield

    client = connect(serve(servicer(Predict=refuse)))
    with pytest.raises(PreconditionError, match="expert 3 could not answer"):
        list(client.predict("e1", QUESTIONS))


def test_a_lab_that_stays_away_is_given_up(connect, free_address):
    with pytest.raises(UnavailableError):
        list(connect(free_address, patience=0.2).predict("e1", QUESTIONS))


def test_what_is_no_question_is_refused_before_a_call(predict, lab):
    for questions, words in (
        ([], "no questions"),
        ([{"numbers": float("nan")}], "row 0: not JSON"),
        ([{"numbers": [1]}, {"numbers": object()}], "row 1: not JSON"),
        ([{"numbers": "x" * predicting.MAX_BYTES}], "row 0: a question has at most"),
    ):
        with error_at("questions", words):
            predict(questions)
    assert not lab.requests
