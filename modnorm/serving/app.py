"""The web application: addresses, limits, keys and errors."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import TypeVar
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from modnorm.errors import ModnormError
from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction
from modnorm.prediction.voting_experts import text_before
from modnorm.serving.api_errors import (
    ApiError,
    ApiKeys,
    RequestLimit,
    ServerMetrics,
    from_library,
    invalid,
    unavailable,
)
from modnorm.serving.request_bodies import Body, ChatBody, CompletionBody, parse_body
from modnorm.serving.served_ensemble import ENSEMBLE, Question, ServedEnsemble
from modnorm.serving.switching_answers import SwitchingAnswers


class Reply:
    """The answers to one request."""

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
    return f"data: {json.dumps(document)}\n\n".encode()


logger = logging.getLogger(__name__)

MAX_BODY = 2**18
"""Bytes of a request's body."""
BODY_SECONDS = 30.0
"""Longest time in which a body must arrive."""
_POLL_SECONDS = 1.0
"""Seconds between two checks whether the client is still there."""
_PLAIN = "text/plain; version=0.0.4"

T = TypeVar("T")
Piece = tuple[int, str | Prediction]
"""Index of a question, and a piece of its text or at the end the prediction."""
Pieces = AsyncGenerator[Piece]
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Server:
    """The parts of the application."""

    ensemble: ServedEnsemble
    answering: SwitchingAnswers
    limit: RequestLimit
    metrics: ServerMetrics
    keys: ApiKeys
    created: int
    """Unix time of the start."""


def build_app(server: Server) -> Starlette:
    endpoints = _Endpoints(server)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", endpoints.guarded(endpoints.chat), methods=["POST"]),
            Route("/v1/completions", endpoints.guarded(endpoints.complete), methods=["POST"]),
            Route("/v1/models", endpoints.guarded(endpoints.models), methods=["GET"]),
            Route("/v1/models/{name}", endpoints.guarded(endpoints.model), methods=["GET"]),
            Route("/healthz", endpoints.alive, methods=["GET"]),
            Route("/readyz", endpoints.ready, methods=["GET"]),
            Route("/metrics", endpoints.measured, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _unknown},
    )


class _Endpoints:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._encoding = ThreadPoolExecutor(1, "encoding")
        """Encodes prompts: a long one takes half a second, in which probes must be answered."""

    def guarded(self, handler: Handler) -> Handler:
        """Return a handler that checks the key, counts the request and reports errors."""

        async def respond(request: Request) -> Response:
            begun = time.monotonic()
            try:
                self._server.keys.check(request.headers.get("authorization", ""))
                response = await handler(request)
            except ApiError as error:
                response = error.response()
            except ModnormError as error:
                logger.warning("a request failed: %s", error)
                response = from_library(error).response()
            except Exception:  # the log has the details
                logger.exception("a request failed")
                response = ApiError(500, "the server failed", kind="server_error").response()
            route = request.scope["path"] if "name" not in request.path_params else "/v1/models/"
            seconds = time.monotonic() - begun
            self._server.metrics.count_request(route, response.status_code, seconds)
            return response

        return respond

    async def chat(self, request: Request) -> Response:
        """Answer a conversation."""
        return await self._answer(request, ChatBody)

    async def complete(self, request: Request) -> Response:
        """Continue a text."""
        return await self._answer(request, CompletionBody)

    async def models(self, _request: Request) -> Response:
        """List the ensemble and its experts."""
        names = self._server.ensemble.models
        return JSONResponse({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        self._server.ensemble.require_model(name)
        return JSONResponse(self._model(name))

    async def alive(self, _request: Request) -> Response:
        """Tell whether the process works: the liveness probe."""
        return _state(is_good=self._server.answering.is_alive)

    async def ready(self, _request: Request) -> Response:
        """Tell whether requests are answered: the readiness and startup probe."""
        return _state(is_good=self._server.answering.is_ready)

    async def measured(self, _request: Request) -> Response:
        return Response(self._server.metrics.text(), media_type=_PLAIN)

    async def _answer(self, request: Request, kind: type[Body]) -> Response:
        body = parse_body(kind, await _read_body(request))
        questions = await self._questions(body)
        reply = Reply(body, questions)
        if not body.stream:
            answers = await _while_connected(request, self._predictions(questions))
            return JSONResponse(reply.document(answers))
        pieces = self._pieces(questions)
        first = await _while_connected(request, anext(pieces))
        return StreamingResponse(_events(reply, first, pieces), media_type="text/event-stream")

    async def _questions(self, body: Body) -> Sequence[Question]:
        """Return the questions of a request, encoded within the limit of the server."""
        loop, ensemble = asyncio.get_running_loop(), self._server.ensemble
        with self._server.limit.place():
            return await loop.run_in_executor(self._encoding, ensemble.questions, body)

    async def _predictions(self, questions: Sequence[Question]) -> Sequence[Prediction]:
        """Return the answers to questions that wait together, within the limit of the server."""
        with self._server.limit.place():
            asking = [asyncio.ensure_future(_last(self._answers(each))) for each in questions]
            try:
                return await asyncio.gather(*asking)
            finally:  # one failure ends the batch
                for each in asking:
                    each.cancel()

    async def _pieces(self, questions: Sequence[Question]) -> Pieces:
        """Yield the pieces of one answer after another within the limit of the server."""
        with self._server.limit.place():
            for index, question in enumerate(questions):
                async with aclosing(self._answers(question)) as pieces:
                    async for piece in pieces:
                        yield index, piece

    async def _answers(self, question: Question) -> AsyncGenerator[str | Prediction]:
        """Yield the pieces of an answer, and count it."""
        async with aclosing(self._server.answering.answer(question)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Prediction):
                    self._server.metrics.count_answer(piece)
                yield piece

    def _model(self, name: str) -> dict[str, object]:
        experts = self._server.ensemble.models[name].indices
        return {
            "id": name,
            "object": "model",
            "created": self._server.created,
            "owned_by": "modnorm",
            "modnorm": {"candidates": list(experts)},
        }


async def _read_body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a browser cannot send this type from another site unasked
        raise ApiError(415, "the content type must be application/json")
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > MAX_BODY:
                    raise ApiError(413, f"the body has more than {MAX_BODY} bytes")
    except TimeoutError as error:
        raise ApiError(408, f"the body did not arrive in {BODY_SECONDS:g} seconds") from error
    except ClientDisconnect as error:
        raise invalid("the client closed the connection") from error
    return bytes(content)


async def _while_connected(request: Request, work: Awaitable[T]) -> T:
    """Return the result of some work; cancel it if the client leaves."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=_POLL_SECONDS))[0]:
            if await request.is_disconnected():
                raise invalid("the client closed the connection")
        return task.result()
    except asyncio.CancelledError as error:
        raise unavailable("the request was cancelled") from error
    finally:
        task.cancel()


async def _last(pieces: AsyncGenerator[str | Prediction]) -> Prediction:
    """Return the last piece of an answer."""
    async with aclosing(pieces):
        while not isinstance(piece := await anext(pieces), Prediction):
            pass
    return piece


async def _events(reply: Reply, first: Piece, pieces: Pieces) -> AsyncGenerator[bytes]:
    """Yield the events of a stream; an error becomes its last event."""
    for event in reply.events(*first):
        yield event
    async with aclosing(pieces):
        try:
            async for piece in pieces:
                for event in reply.events(*piece):
                    yield event
        except ModnormError as error:
            logger.warning("a stream failed: %s", error)
            yield server_event(from_library(error).document())


def _state(*, is_good: bool) -> Response:
    return JSONResponse({"status": "ok" if is_good else "unavailable"}, 200 if is_good else 503)


async def _unknown(request: Request, error: Exception) -> Response:
    """Report an unknown address or method in OpenAI's form."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    message = f"there is no {request.method[:16]} {request.url.path[:128]}"
    return ApiError(status, message, headers=headers).response()
