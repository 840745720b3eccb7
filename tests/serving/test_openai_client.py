"""The server, asked by the official client of OpenAI."""

import openai
import pytest

QUESTION = [{"role": "user", "content": "What is 4 + 4?"}]


@pytest.fixture
def client(serve):
    clients = []

    def connect(api_key="unused", **options):
        base_url = f"{serve(**options)}/v1"
        clients.append(openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0))
        return clients[-1]

    yield connect
    for each in clients:
        each.close()


def test_a_chat_with_the_ensemble_gives_the_winning_completion_and_the_votes(client):
    answer = client().chat.completions.create(model="ensemble", messages=QUESTION)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "#### 8"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 15
    vote = answer.model_extra["modnorm"]
    assert (vote["answer"], vote["agreement"], vote["skipped"]) == ("8", pytest.approx(2 / 3), 0)
    assert vote["votes"][0] == {"answer": "8", "votes": 2, "expert": 10}
    assert [each["completion"] for each in vote["experts"]] == ["so\n#### 7", "#### 8", "#### 8"]


def test_a_single_expert_answers_alone(client, engine):
    answer = client().chat.completions.create(model="expert-1", messages=QUESTION, max_tokens=9)
    assert answer.choices[0].message.content == "so\n#### 7"
    assert "modnorm" not in answer.model_extra
    assert engine.batches == [(3, 1, 9)]


def test_an_answer_without_a_cap_has_the_tokens_that_its_prompt_leaves(client, engine):
    long = [{"role": "user", "content": "7 " * 235}]
    answer = client().chat.completions.create(model="expert-1", messages=long)
    assert 512 - answer.usage.prompt_tokens == engine.batches[0][2] < 50


@pytest.mark.parametrize(("model", "tokens"), [("ensemble", 15), ("expert-2", 5)])
def test_a_stream_has_the_answer_its_end_and_its_usage(client, model, tokens):
    stream = client().chat.completions.create(
        model=model, messages=QUESTION, stream=True, stream_options={"include_usage": True}
    )
    text, end, usage = stream
    assert {each.id for each in (text, end, usage)} == {text.id}
    assert (text.choices[0].delta.role, text.choices[0].delta.content) == ("assistant", "#### 8")
    assert end.choices[0].finish_reason == "stop"
    assert ("modnorm" in end.model_extra) == (model == "ensemble")
    assert usage.usage.completion_tokens == tokens


def test_a_row_is_asked_with_the_prompt_of_the_task(client, ensemble):
    answer = client().chat.completions.create(
        model="ensemble", messages=[], extra_body={"row": {"question": "What is 4 + 4?"}}
    )
    assert answer.model_extra["modnorm"]["answer"] == "8"


def test_models_are_the_ensemble_and_its_experts(client):
    connected = client()
    models = list(connected.models.list())
    assert [model.id for model in models] == ["ensemble", "expert-1", "expert-2", "expert-3"]
    assert models[0].model_extra["modnorm"] == {"candidates": [30, 10, 20]}
    assert connected.models.retrieve("expert-2").id == "expert-2"
    with pytest.raises(openai.NotFoundError):
        connected.models.retrieve("expert-9")


def test_keys_are_needed_where_the_server_has_some(client):
    key = "sk-0123456789abcdef"
    connected = client(api_key=key, keys=("another-key-0123456789", key))
    assert len(list(connected.models.list())) == 4
    for wrong in ("sk-0123456789abcdeF", "x"):
        with pytest.raises(openai.AuthenticationError) as caught:
            connected.with_options(api_key=wrong).models.list()
        assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize("task_name", ["countdown"])
def test_a_vote_on_countdown_reads_its_prompt_or_its_row(client, ensemble):
    connected = client()
    row = {"numbers": [44, 19, 35], "target": 98}
    prompt = ensemble.task.messages(ensemble.task.parse(row))[-1].content
    for asked in (
        {"messages": [{"role": "user", "content": prompt}]},
        {"messages": [], "extra_body": {"row": row}},
    ):
        answer = connected.chat.completions.create(model="ensemble", **asked)
        assert answer.model_extra["modnorm"]["answer"] is None
        assert answer.choices[0].message.content == "so\n#### 7"
    with pytest.raises(openai.BadRequestError, match="numbers and the target"):
        connected.chat.completions.create(model="ensemble", messages=QUESTION)
    alone = connected.chat.completions.create(model="expert-1", messages=QUESTION)
    assert alone.choices[0].message.content == "so\n#### 7"
