"""All experts of a question answer at once, as adapters of one base."""

import openai
import pytest

from modnorm.errors import EngineError
from verification.labs.waiting import wait_until

QUESTION = [{"role": "user", "content": "What is 4 + 4?"}]


@pytest.fixture
def client(serve):
    connected = openai.OpenAI(
        base_url=f"{serve(way='adapters')}/v1", api_key="unused", max_retries=0
    )
    yield connected
    connected.close()


def test_each_expert_is_loaded_as_an_adapter_before_the_server_is_ready(client, adapters):
    assert adapters.folders == ["30", "10", "20"]
    assert len(list(client.models.list())) == 4


def test_the_ensemble_asks_every_adapter_and_votes(client, adapters):
    answer = client.chat.completions.create(model="ensemble", messages=QUESTION, max_tokens=9)
    vote = answer.model_extra["modnorm"]
    assert (vote["answer"], vote["votes"][0]["votes"]) == ("8", 2)
    assert answer.choices[0].message.content == "#### 8"
    assert adapters.asked == [(1, 9, False), (2, 9, False), (3, 9, False)]
    assert answer.usage.completion_tokens == 5 * len(vote["experts"])


def test_an_expert_that_cannot_change_the_vote_is_aborted(client, adapters):
    adapters.slow.set()
    answer = client.chat.completions.create(model="ensemble", messages=QUESTION)
    vote = answer.model_extra["modnorm"]
    assert (vote["answer"], vote["agreement"], vote["skipped"]) == ("8", 1.0, 1)
    assert [each["expert"] for each in vote["experts"]] == [10, 20]
    wait_until(lambda: adapters.aborted == [1], "the slow expert is aborted")


def test_a_single_expert_streams_its_text_as_it_comes(client, adapters):
    chunks = list(
        client.chat.completions.create(
            model="expert-1",
            messages=QUESTION,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert texts == ["so", "\n#### 7", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 5
    assert adapters.asked == [(1, 64, True)]


def test_a_stream_that_fails_ends_with_an_error_in_the_form_of_openai(
    client, adapters, monkeypatch
):
    async def broken(adapter, prompt, limits, *, streams):
        yield "so"
        raise EngineError("the GPU is gone")

    monkeypatch.setattr(adapters, "generate", broken)
    stream = client.chat.completions.create(model="expert-1", messages=QUESTION, stream=True)
    assert next(stream).choices[0].delta.content == "so"
    with pytest.raises(openai.APIError, match="the GPU is gone"):
        next(stream)
