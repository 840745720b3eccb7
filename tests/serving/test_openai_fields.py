"""Fields of OpenAI's requests, batches of prompts and texts that end an answer."""

import json

import pytest

from tests.serving.test_hostile_requests import CHAT, QUESTION, call

PLAIN = "/v1/completions"
PROMPT = {"model": "ensemble", "prompt": "4 + 4?"}

FIELDS: dict[str, tuple[list[object], list[object]]] = {
    "seed": ([7], []),
    "user": (["me"], []),
    "temperature": ([0, 0.0], [1, 0.7]),
    "top_p": ([1, 1.0], [0.9]),
    "n": ([1], [2]),
    "presence_penalty": ([0, 0.0], [1]),
    "frequency_penalty": ([0], [-0.5]),
    "logit_bias": ([{}], [{"50256": -100}]),
    "max_tokens": ([5], [0, 1.5]),
    "stop": (["", [], ["x"] * 16], [{}, ["x"] * 17]),
    "stream": ([False], [True]),
    "stream_options": (
        [{"include_usage": True, "include_obfuscation": False}],
        [{"include_obfuscation": True}],
    ),
    "metadata": ([{"run": "7"}], []),
    "parallel_tool_calls": ([True, False], []),
    "prediction": ([{"type": "content", "content": "8"}], []),
    "prompt_cache_key": (["k"], []),
    "prompt_cache_retention": (["24h"], []),
    "safety_identifier": (["me"], []),
    "max_completion_tokens": ([5], [0]),
    "audio": ([], [{"voice": "alloy", "format": "wav"}]),
    "function_call": (["none", "auto"], [{"name": "f"}]),
    "functions": ([[]], [[{"name": "f"}]]),
    "logprobs": ([False], [True, 0, 5]),
    "top_logprobs": ([0], [5]),
    "modalities": ([["text"]], [["text", "audio"], []]),
    "reasoning_effort": (["none"], ["low", "high"]),
    "response_format": (
        [{"type": "text"}],
        [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "a"}}],
    ),
    "service_tier": (["auto", "default"], ["flex", "priority"]),
    "store": ([False], [True]),
    "tool_choice": (["none", "auto"], ["required"]),
    "tools": ([[]], [[{"type": "function", "function": {"name": "f"}}]]),
    "verbosity": (["medium"], ["low"]),
    "web_search_options": ([], [{}]),
    "best_of": ([1], [2]),
    "echo": ([False], [True]),
    "suffix": ([""], ["end"]),
}
"""Values of each field: those that are accepted, and those that are refused."""


@pytest.mark.parametrize(("path", "question"), [(CHAT, QUESTION), (PLAIN, PROMPT)])
def test_fields_without_effect_are_accepted_and_others_refused_by_name(serve, path, question):
    address = serve()
    for field, (accepted, refused) in FIELDS.items():
        for value in (None, *accepted):
            assert call(address, path, question | {field: value})[0] == 200, (field, value)
        for value in refused:
            status, content = call(address, path, question | {field: value})
            assert (status, content["error"]["param"].partition(".")[0]) == (400, field), value


def test_a_message_that_the_server_sent_is_accepted_back(serve):
    address = serve()
    sent = call(address, CHAT, QUESTION)[1]["choices"][0]["message"]
    none = dict.fromkeys(("annotations", "audio", "function_call", "tool_calls", "name"))
    for message in (sent, sent | none, sent | {"annotations": [], "tool_calls": []}):
        messages = [*QUESTION["messages"], message, *QUESTION["messages"]]
        assert call(address, CHAT, QUESTION | {"messages": messages})[0] == 200
    for field, value in (
        ("refusal", "I cannot"),
        ("tool_calls", [{"id": "1"}]),
        ("function_call", {"name": "f"}),
        ("annotations", [{"type": "url_citation"}]),
        ("audio", {"id": "1"}),
    ):
        status, content = call(address, CHAT, QUESTION | {"messages": [sent | {field: value}]})
        assert (status, content["error"]["param"]) == (400, f"messages.0.{field}")


@pytest.mark.parametrize(
    "prompts", [["4 + 4?", "5 + 3?"], [[60, 11, 60], [61, 11, 62]], ["4 + 4?"], [[60, 11, 60]]]
)
def test_a_batch_of_prompts_is_answered_in_order(serve, engine, prompts):
    status, content = call(serve(), PLAIN, PROMPT | {"prompt": prompts})
    assert status == 200
    assert [each["index"] for each in content["choices"]] == list(range(len(prompts)))
    assert {each["text"] for each in content["choices"]} == {"#### 8"}
    votes = [content] if len(prompts) == 1 else content["choices"]
    assert [each["modnorm"]["answer"] for each in votes] == ["8"] * len(prompts)
    assert engine.batches == [(seed, len(prompts), 64) for seed in (3, 1, 2)]
    assert content["usage"]["completion_tokens"] == 15 * len(prompts)


def test_token_ids_are_one_prompt(serve, ensemble):
    address, ids = serve(), ensemble.encoder.encode_text("4 + 4?")
    contents = [call(address, PLAIN, PROMPT | {"prompt": each})[1] for each in (ids, "4 + 4?")]
    assert [len(each["choices"]) for each in contents] == [1, 1]
    assert contents[0]["usage"] == contents[1]["usage"]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "no prompt and no row"),
        ("", "no prompt and no row"),
        (["4 + 4?", ""], "no prompt and no row"),
        (None, "no prompt and no row"),
        (["4 + 4?", 7], "a text, token ids, or a list"),
        ([[1, True]], "a text, token ids, or a list"),
        ([[]], "a text, token ids, or a list"),
        ({}, "a text, token ids, or a list"),
        ([-1], "token -1"),
        ([10**30], f"token {10**30}"),
        (["x"] * 257, "at most 256 prompts"),
        (["4 + 4?", "7 " * 600], "do not fit"),
    ],
)
def test_prompts_that_cannot_be_answered_are_refused(serve, engine, prompt, message):
    status, content = call(serve(), PLAIN, PROMPT | {"prompt": prompt})
    assert (status, content["error"]["param"]) == (400, "prompt")
    assert message in content["error"]["message"]
    assert engine.batches == []


@pytest.mark.parametrize(
    ("stop", "text", "vote"),
    [
        ("8", "#### ", None),
        (["Question:", "</s>"], "#### 8", "8"),
        (["8", "##"], "", None),
        (["", "7"], "#### 8", "8"),
    ],
)
def test_an_answer_ends_before_the_first_stop_and_votes_so(serve, stop, text, vote):
    content = call(serve(), CHAT, QUESTION | {"stop": stop})[1]
    first = next(each for each in content["modnorm"]["experts"] if each["expert"] == 10)
    assert first["completion"] == text
    assert content["choices"][0]["finish_reason"] == "stop"
    votes = {each["vote"] for each in content["modnorm"]["experts"][1:]}
    assert votes == {vote}


@pytest.mark.parametrize(
    ("stop", "text"), [("####", "so\n"), ("# 7", "so\n###"), ("77", "so\n#### 7")]
)
def test_a_stream_shows_nothing_of_its_stop(serve, stop, text):
    asked = {"model": "expert-1", "prompt": ["4 + 4?", "5 + 3?"], "stream": True, "stop": stop}
    usage = {"stream_options": {"include_usage": True}}
    _, events = call(serve(), PLAIN, asked | usage)
    pieces = [json.loads(line[6:]) for line in events.split("\n") if line.startswith("data: {")]
    choices = [choice for piece in pieces for choice in piece["choices"]]
    for index in (0, 1):
        own = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["text"] for choice in own) == text
        assert own[-1]["finish_reason"] == "stop"
    assert pieces[-1]["usage"]["completion_tokens"] == 10
    assert events.endswith("data: [DONE]\n\n")


def test_a_batch_fails_as_one(serve, engine):
    address, asked = serve(), PROMPT | {"prompt": ["4 + 4?"] * 3}
    engine.failure = RuntimeError("a defect")
    assert call(address, PLAIN, asked)[0] == 500
    engine.failure = None
    assert call(address, PLAIN, asked)[0] == 200
