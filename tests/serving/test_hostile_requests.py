"""Requests that the server must refuse, and the answers that it must not lose."""

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from modnorm.errors import EngineError
from modnorm.serving.app import MAX_BODY
from verification.labs.waiting import wait_until

CHAT = "/v1/chat/completions"
QUESTION = {"model": "ensemble", "messages": [{"role": "user", "content": "4 + 4?"}]}
JSON = {"Content-Type": "application/json"}


def call(address, path, body=None, headers=JSON, method=None):
    """Return status and decoded body of one request."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    text = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method or ("GET" if body is None else "POST"), path, text, headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    kind = response.getheader("content-type", "")
    return response.status, json.loads(content) if "json" in kind else content.decode()


def is_open(address, count):
    """Whether the server counts so many requests."""
    return f"modnorm_serve_open_requests {count}" in call(address, "/metrics")[1]


@pytest.mark.parametrize(
    ("change", "status", "param", "message"),
    [
        ({"model": "gpt-5"}, 404, "model", "there is no model"),
        ({"model": 7}, 400, "model", "model: "),
        ({"messages": []}, 400, "messages", "no message and no row"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "messages.0.role", "role"),
        ({"messages": "x"}, 400, "messages", "messages: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "messages.0.content.0.type",
            "there is no 'image_url' here, only text",
        ),
        ({"messages": [{"role": "user", "content": 7}]}, 400, "messages.0.content", "a list"),
        ({"messages": [{"role": "user", "content": "7 " * 600}]}, 400, "messages", "do not fit"),
        ({"temperature": 0.7}, 400, "temperature", "decoding is greedy"),
        ({"n": 2}, 400, "n", "decoding is greedy"),
        ({"max_tokens": 0}, 400, "max_tokens", "must be at least 1"),
        ({"max_tokens": "many"}, 400, "max_tokens", "must be a whole number, not 'many'"),
        ({"max_tokens": True}, 400, "max_tokens", "must be a whole number, not True"),
        ({"stream": "yes"}, 400, "stream", "must be true or false, not 'yes'"),
        (
            {"messages": [{"role": "user", "content": None}]},
            400,
            "messages.0.content",
            "a text or",
        ),
        ({"max_token": 9}, 400, "max_token", "did you mean max_tokens?"),
        ({"guided_json": {}}, 400, "guided_json", "there is no such field here, only "),
        ({"stop": 7}, 400, "stop", "must be a text or a list of texts"),
        ({"stop": [7]}, 400, "stop", "must be a text or a list of texts"),
        ({"stream_options": {"usage": True}}, 400, "stream_options.usage", "no such field"),
        ({"row": {"problem": "x"}}, 400, "row", "column 'question'"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_the_form_of_openai(
    serve, engine, change, status, param, message
):
    answered, content = call(serve(), CHAT, QUESTION | change)
    assert answered == status
    assert content["error"].keys() == {"message", "type", "param", "code"}
    assert content["error"]["type"] == "invalid_request_error"
    assert content["error"]["param"] == param
    assert message in content["error"]["message"]
    assert engine.batches == []


def test_probes_are_answered_while_a_prompt_is_encoded(serve, ensemble, monkeypatch):
    address, encode = serve(limit=2), ensemble.encoder.encode
    begun, gate = threading.Event(), threading.Event()

    def slow(messages):
        begun.set()
        assert gate.wait(60)
        return encode(messages)

    monkeypatch.setattr(ensemble.encoder, "encode", slow)
    with ThreadPoolExecutor() as threads:
        calls = [threads.submit(call, address, CHAT, QUESTION) for _ in range(2)]
        assert begun.wait(60)
        wait_until(lambda: is_open(address, "2.0"), "both prompts are encoded or wait for it")
        assert call(address, "/healthz")[0] == 200
        assert call(address, CHAT, QUESTION)[0] == 429
        gate.set()
        assert [each.result()[0] for each in calls] == [200, 200]


def test_a_key_may_have_other_characters_than_ascii(serve):
    address = serve(keys=("schlüssel-0123456789-à",))
    for key, status in (("schlüssel-0123456789-à", 200), ("schlussel-0123456789", 401)):
        headers = {"Authorization": f"Bearer {key}".encode()}
        assert call(address, "/v1/models", headers=headers)[0] == status


def test_malformed_and_oversized_bodies_are_refused(serve):
    address = serve()
    for body in ("{", "[]", "nul", '{"model": "\\ud800"}', "[" * 100_000):
        status, content = call(address, CHAT, body)
        assert (status, content["error"]["type"]) == (400, "invalid_request_error")
    status, content = call(address, CHAT, "x" * (MAX_BODY + 1))
    assert (status, content["error"]["message"]) == (
        413,
        f"the body has more than {MAX_BODY} bytes",
    )
    status, _ = call(address, CHAT, json.dumps(QUESTION), {"Content-Type": "text/plain"})
    assert status == 415
    assert call(address, CHAT, QUESTION)[0] == 200


def test_of_a_thousand_requests_at_once_each_is_answered_or_told_to_wait(serve, engine):
    address = serve(limit=40)
    engine.gate.clear()
    with ThreadPoolExecutor(1000) as threads:
        calls = [threads.submit(call, address, CHAT, QUESTION) for _ in range(1000)]
        wait_until(lambda: sum(each.done() for each in calls) == 960, "960 calls were refused")
        engine.gate.set()
        answers = [each.result() for each in calls]
    refused = [content for status, content in answers if status == 429]
    assert len(refused) == 960
    assert {each["error"]["code"] for each in refused} == {"rate_limit_exceeded"}
    accepted = [content for status, content in answers if status == 200]
    assert len(accepted) == 40
    assert {each["modnorm"]["answer"] for each in accepted} == {"8"}
    assert len(engine.batches) < 40  # one by one, three experts would take 120
    status, metrics = call(address, "/metrics")
    assert status == 200
    assert "modnorm_serve_open_requests 0.0" in metrics
    assert f'modnorm_serve_requests_total{{route="{CHAT}",status="429"}} 960.0' in metrics


def test_an_engine_that_failed_fails_the_probes(serve, engine):
    address = serve()
    engine.gate.clear()
    with ThreadPoolExecutor() as threads:
        first = threads.submit(call, address, CHAT, QUESTION)
        wait_until(lambda: engine.held, "the first call is answered")
        second = threads.submit(call, address, CHAT, QUESTION | {"model": "expert-1"})
        wait_until(lambda: engine.waiting == 1, "the second call waits")
        engine.failure = EngineError("the GPU is gone")
        engine.gate.set()
        assert first.result()[0] == 500
        assert second.result()[0] == 503
    wait_until(lambda: call(address, "/healthz")[0] == 503, "the server is not alive")
    assert call(address, "/readyz")[0] == 503
    assert call(address, CHAT, QUESTION)[0] == 503


@pytest.fixture
def refusing(ensemble, monkeypatch):
    """Make the votes of the task fail on hostile questions."""
    vote = type(ensemble.task).vote

    def refuse(task, row, completion):
        if "hostile" in str(row):
            raise ValueError("what is this?")
        return vote(task, row, completion)

    monkeypatch.setattr(type(ensemble.task), "vote", refuse)


@pytest.mark.usefixtures("refusing")
def test_a_request_that_the_task_refuses_fails_alone(serve, engine):
    address = serve()
    engine.gate.clear()
    hostile = {"model": "ensemble", "row": {"question": "hostile"}}
    with ThreadPoolExecutor() as threads:
        first = threads.submit(call, address, CHAT, QUESTION)
        wait_until(lambda: engine.held, "the first call is answered")
        waiting = [threads.submit(call, address, CHAT, each) for each in (QUESTION, hostile)]
        wait_until(lambda: engine.waiting == 2, "both calls wait and will share a batch")
        engine.gate.set()
        assert first.result()[0] == 200
        good, bad = (each.result() for each in waiting)
    assert (good[0], good[1]["modnorm"]["answer"]) == (200, "8")
    assert (bad[0], bad[1]["error"]["type"]) == (400, "invalid_request_error")
    assert "what is this?" in bad[1]["error"]["message"]
    assert 2 in [size for _, size, _ in engine.batches]


def test_a_defect_shows_no_details_and_is_counted(serve, engine):
    """An alert is raised for requests that fail, so defects count among them."""
    address = serve()
    engine.failure = RuntimeError("secret")
    status, content = call(address, CHAT, QUESTION)
    assert (status, content["error"]["message"]) == (500, "the server failed")
    counted = f'modnorm_serve_requests_total{{route="{CHAT}",status="500"}} 1.0'
    assert counted in call(address, "/metrics")[1]


def test_a_waiting_request_whose_client_left_is_dropped(serve, engine):
    address = serve()
    engine.gate.clear()
    with ThreadPoolExecutor() as threads:
        first = threads.submit(call, address, CHAT, QUESTION)
        wait_until(lambda: engine.held, "the first call is answered")
        gone = http.client.HTTPConnection(urlsplit(address).netloc)
        gone.request("POST", CHAT, json.dumps(QUESTION | {"model": "expert-1"}), JSON)
        wait_until(lambda: engine.waiting == 1, "the second call waits")
        gone.close()
        wait_until(lambda: is_open(address, "1.0"), "the second call is dropped")
        engine.gate.set()
        assert first.result()[0] == 200
    assert [seed for seed, _, _ in engine.batches] == [3, 1, 2]
