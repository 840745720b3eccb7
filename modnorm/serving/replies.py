"""Answers in the form of OpenAI's API."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from uuid import uuid4

from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction
from modnorm.serving.request_bodies import Body, ChatBody
from modnorm.serving.served_ensemble import ENSEMBLE, Question


class Reply:
    """The answer to one request.

    Args:
        body: The request.
        question: What it asked.
    """

    def __init__(self, body: Body, question: Question) -> None:
        self._chat = isinstance(body, ChatBody)
        self._model = body.model
        self._wants_usage = (body.stream_options or {}).get("include_usage") is True
        self._prompt_tokens = len(question.prompt)
        self._sent = 0
        """Characters that events have shown."""
        self._id = f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid4().hex}"
        self._created = int(time.time())

    def document(self, prediction: Prediction) -> dict[str, object]:
        """Return the whole answer."""
        kind = "chat.completion" if self._chat else "text_completion"
        shown = _shown(prediction)
        text = shown.completion
        content: dict[str, object] = (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if self._chat
            else {"text": text}
        )
        document = self._envelope(kind, content, _finish(shown))
        document["usage"] = self._usage(prediction)
        if self._model == ENSEMBLE:
            document["modnorm"] = vote_document(prediction)
        return document

    def events(self, piece: str | Prediction) -> Iterator[bytes]:
        """Yield the server-sent events of a piece of text, or of the end of the answer."""
        if isinstance(piece, str):
            yield self._chunk(piece)
            return
        shown = _shown(piece)
        if not self._sent or len(shown.completion) > self._sent:
            yield self._chunk(shown.completion[self._sent :])
        yield self._event({"delta": {}} if self._chat else {"text": ""}, _finish(shown))
        if self._wants_usage:
            empty = self._envelope(self._chunk_kind, {}, None)
            yield server_event(empty | {"choices": [], "usage": self._usage(piece)})
        yield b"data: [DONE]\n\n"

    def _chunk(self, text: str) -> bytes:
        role = {} if self._sent else {"role": "assistant"}
        self._sent += len(text)
        content: dict[str, object] = (
            {"delta": {**role, "content": text}} if self._chat else {"text": text}
        )
        return self._event(content, None)

    def _event(self, content: Mapping[str, object], finish: str | None) -> bytes:
        return server_event(self._envelope(self._chunk_kind, content, finish))

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _usage(self, prediction: Prediction) -> Mapping[str, int]:
        answers = prediction.experts
        prompts = self._prompt_tokens * len(answers)
        completions = sum(answer.tokens for answer in answers)
        return {
            "prompt_tokens": prompts,
            "completion_tokens": completions,
            "total_tokens": prompts + completions,
        }

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


def _finish(answer: ExpertAnswer) -> str:
    return "length" if answer.truncated else "stop"


def server_event(document: Mapping[str, object]) -> bytes:
    """Return a document as a server-sent event."""
    return f"data: {json.dumps(document)}\n\n".encode()
