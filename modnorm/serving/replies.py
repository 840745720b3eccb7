"""Answers in the form of OpenAI's API."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from uuid import uuid4

from modnorm.prediction.voting_experts import ExpertAnswer, Prediction
from modnorm.serving.request_bodies import Body, ChatBody, usage
from modnorm.serving.served_ensemble import ENSEMBLE, Question


class Reply:
    """The answer to one request.

    Args:
        body: The request.
        question: What it asked.
        prediction: The experts' answers and their vote.
    """

    def __init__(self, body: Body, question: Question, prediction: Prediction) -> None:
        self._chat = isinstance(body, ChatBody)
        self._model = body.model
        self._wants_usage = (body.stream_options or {}).get("include_usage") is True
        self._prediction = prediction
        self._shown = _shown(prediction)
        answers = prediction.experts
        self._usage = usage(
            len(question.prompt) * len(answers), sum(answer.tokens for answer in answers)
        )
        self._id = f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid4().hex}"
        self._created = int(time.time())

    def document(self) -> dict[str, object]:
        """Return the whole answer."""
        kind = "chat.completion" if self._chat else "text_completion"
        text = self._shown.completion
        content: dict[str, object] = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if self._chat
            else {"text": text}
        )
        document = self._envelope(kind, content, self._finish) | {"usage": self._usage}
        if self._model == ENSEMBLE:
            document["modnorm"] = vote_document(self._prediction)
        return document

    def events(self) -> Iterator[bytes]:
        """Yield the answer as server-sent events: the text in one event, then its end."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        text = self._shown.completion
        first: dict[str, object] = (
            {"delta": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        )
        last: dict[str, object] = {"delta": {}} if self._chat else {"text": ""}
        yield _event(self._envelope(kind, first, None))
        yield _event(self._envelope(kind, last, self._finish))
        if self._wants_usage:
            empty = self._envelope(kind, {}, None) | {"choices": [], "usage": self._usage}
            yield _event(empty)
        yield b"data: [DONE]\n\n"

    @property
    def _finish(self) -> str:
        return "length" if self._shown.truncated else "stop"

    def _envelope(
        self, kind: str, content: Mapping[str, object], finish: str | None
    ) -> dict[str, object]:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": [choice],
        }


def vote_document(prediction: Prediction) -> dict[str, object]:
    """Return the extension field of an ensemble's answer."""
    return {
        "answer": prediction.answer,
        "agreement": prediction.agreement,
        "votes": [asdict(count) for count in prediction.votes],
        "skipped": prediction.skipped,
        "experts": [asdict(answer) for answer in prediction.experts],
    }


def _shown(prediction: Prediction) -> ExpertAnswer:
    """Return the winning answer; without a vote, the best-ranked expert's."""
    if not prediction.votes:
        return prediction.experts[0]
    winner = prediction.votes[0].expert
    return next(answer for answer in prediction.experts if answer.expert == winner)


def _event(document: Mapping[str, object]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()
