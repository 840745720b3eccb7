"""Fields of OpenAI's requests, and texts that end an answer."""

import pytest

from tests.serving.test_hostile_requests import CHAT, QUESTION, call

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
    "stream": ([False, True], []),
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
}
"""Values of each field: those that are accepted, and those that are refused."""


def test_fields_without_effect_are_accepted_and_others_refused_by_name(serve):
    address = serve()
    for field, (accepted, refused) in FIELDS.items():
        for value in (None, *accepted):
            assert call(address, CHAT, QUESTION | {field: value})[0] == 200, (field, value)
        for value in refused:
            status, content = call(address, CHAT, QUESTION | {field: value})
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
