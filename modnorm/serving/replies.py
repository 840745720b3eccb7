"""Answers in the form of OpenAI's API."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from uuid import uuid4

from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction
from modnorm.prediction.voting_experts import text_before
from modnorm.serving.request_bodies import Body, ChatBody
from modnorm.serving.served_ensemble import ENSEMBLE, Question


class Reply:
    """The answers to one request.

    Args:
        body: The request.
        questions: What it asked.
    """

    def __init__(self, body: Body, questions: Sequence[Question]) -> None:
        self._chat = isinstance(body, ChatBody)
        self._model = body.model
        self._stop = body.stop
        self._wants_usage = body.stream_options is not None and body.stream_options.include_usage
        self._questions = questions
        self._texts = [""] * len(questions)
        """Text of each answer as far as it is generated."""
        self._sent = [0] * len(questions)
        """Characters of each answer that events have shown."""
        self._ends: list[Prediction] = []
        self._id = f"{'chatcmpl' if self._chat else 'cmpl'}-{uuid4().hex}"
        self._created = int(time.time())

    def document(self, predictions: Sequence[Prediction]) -> dict[str, object]:
        """Return the whole answers; a single one has its vote beside the choice."""
        kind = "chat.completion" if self._chat else "text_completion"
        choices = [self._whole(index, each) for index, each in enumerate(predictions)]
        votes = [vote_document(each) for each in predictions if self._model == ENSEMBLE]
        document = self._envelope(kind, choices) | {"usage": self._usage(predictions)}
        if len(votes) == 1:
            return document | {"modnorm": votes[0]}
        for choice, vote in zip(choices, votes, strict=False):
            choice["modnorm"] = vote
        return document

    def _whole(self, index: int, prediction: Prediction) -> dict[str, object]:
        shown = _shown(prediction)
        text = shown.completion
        message = {"role": "assistant", "content": text, "refusal": None}
        content: dict[str, object] = {"message": message} if self._chat else {"text": text}
        return _choice(index, content, _finish(shown))

    def events(self, index: int, piece: str | Prediction) -> Iterator[bytes]:
        """Yield the server-sent events of a piece of an answer, or of its end."""
        if isinstance(piece, str):
            self._texts[index] += piece
            text = text_before(self._texts[index], self._stop)
            if text == self._texts[index]:  # its end may begin a text that ends the answer
                text = text[: len(text) + 1 - max(map(len, self._stop), default=1)]
            if len(text) > self._sent[index]:
                yield self._chunk(index, text)
            return
        shown = _shown(piece)
        if not self._sent[index] or len(shown.completion) > self._sent[index]:
            yield self._chunk(index, shown.completion)
        yield self._event(index, {"delta": {}} if self._chat else {"text": ""}, _finish(shown))
        self._ends.append(piece)
        if len(self._ends) < len(self._questions):
            return
        if self._wants_usage:
            empty = self._envelope(self._chunk_kind, [])
            yield server_event(empty | {"usage": self._usage(self._ends)})
        yield b"data: [DONE]\n\n"

    def _chunk(self, index: int, text: str) -> bytes:
        role = {} if self._sent[index] else {"role": "assistant"}
        new = text[self._sent[index] :]
        self._sent[index] = len(text)
        content: dict[str, object] = (
            {"delta": {**role, "content": new}} if self._chat else {"text": new}
        )
        return self._event(index, content, None)

    def _event(self, index: int, content: Mapping[str, object], finish: str | None) -> bytes:
        choices = [_choice(index, content, finish)]
        return server_event(self._envelope(self._chunk_kind, choices))

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _usage(self, predictions: Sequence[Prediction]) -> Mapping[str, int]:
        asked = zip(self._questions, predictions, strict=True)
        prompts = sum(len(question.prompt) * len(each.experts) for question, each in asked)
        completions = sum(answer.tokens for each in predictions for answer in each.experts)
        return {
            "prompt_tokens": prompts,
            "completion_tokens": completions,
            "total_tokens": prompts + completions,
        }

    def _envelope(self, kind: str, choices: Sequence[object]) -> dict[str, object]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }


def _choice(index: int, content: Mapping[str, object], finish: str | None) -> dict[str, object]:
    return {"index": index, **content, "logprobs": None, "finish_reason": finish}


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
