"""The web application: addresses, limits, keys and errors."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TypeVar, cast
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from modnorm.errors import ModnormError
from modnorm.prediction.predictor import Question
from modnorm.prediction.ranked_votes import ExpertAnswer, Prediction
from modnorm.serving.api_errors import (
    CHAT,
    ApiError,
    ApiKeys,
    RequestLimit,
    ServerMetrics,
    from_library,
    invalid,
    unavailable,
)
from modnorm.serving.request_bodies import ChatBody, parse_body
from modnorm.serving.served_ensemble import ENSEMBLE, ServedEnsemble
from modnorm.serving.switching_answers import SwitchingAnswers

logger = logging.getLogger(__name__)

MAX_BODY = 2**18
"""Bytes of a request's body."""
BODY_SECONDS = 30.0
"""Longest time in which a body must arrive."""
_POLL_SECONDS = 1.0
"""Seconds between two checks whether the client is still there."""

_VOTE = ("answer", "agreement", "votes", "skipped", "experts")
"""Fields of a prediction in an ensemble's answer."""

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


def chat_completion(
    body: ChatBody, question: Question, prediction: Prediction
) -> dict[str, object]:
    """Return an answer as one document; that of the ensemble has its vote beside the choice."""
    shown = _shown(prediction)
    message = {"role": "assistant", "content": shown.completion, "refusal": None}
    return {
        **_head(body, "chat.completion"),
        "choices": [_choice({"message": message}, _finish(shown))],
        "usage": _usage(question, prediction),
        **_vote(body, prediction),
    }


def chat_events(body: ChatBody, question: Question, prediction: Prediction) -> Iterator[bytes]:
    """Yield an answer as server-sent events; the vote is beside the last choice."""
    shown, head = _shown(prediction), _head(body, "chat.completion.chunk")
    message = {"role": "assistant", "content": shown.completion}
    documents = [
        head | {"choices": [_choice({"delta": message}, None)]},
        head | {"choices": [_choice({"delta": {}}, _finish(shown))]} | _vote(body, prediction),
    ]
    if body.stream_options is not None and body.stream_options.include_usage:
        documents.append(head | {"choices": [], "usage": _usage(question, prediction)})
    for document in documents:
        yield f"data: {json.dumps(document)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def _head(body: ChatBody, kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": body.model,
    }


def _choice(content: Mapping[str, object], finish: str | None) -> dict[str, object]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish}


def _usage(question: Question, prediction: Prediction) -> Mapping[str, int]:
    prompts = len(question.prompt) * len(prediction.experts)
    completions = sum(answer.tokens for answer in prediction.experts)
    return {
        "prompt_tokens": prompts,
        "completion_tokens": completions,
        "total_tokens": prompts + completions,
    }


def _vote(body: ChatBody, prediction: Prediction) -> dict[str, object]:
    """Return the extension field of an ensemble's answer; an expert casts no vote."""
    if body.model != ENSEMBLE:
        return {}
    vote = asdict(prediction)
    return {"modnorm": {name: value for name, value in vote.items() if name in _VOTE}}


def _shown(prediction: Prediction) -> ExpertAnswer:
    """Return the winning answer; without a vote, the best-ranked expert's."""
    winner = (prediction.votes or prediction.experts)[0].expert
    return next(answer for answer in prediction.experts if answer.expert == winner)


def _finish(answer: ExpertAnswer) -> str:
    return "length" if answer.truncated else "stop"


@dataclass(frozen=True)
class Server:
    """The application and its parts."""

    ensemble: ServedEnsemble
    answering: SwitchingAnswers
    limit: RequestLimit
    metrics: ServerMetrics
    keys: ApiKeys
    created: int
    """Unix time of the start."""
    _encoding: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, "encoding"),
        init=False,
        repr=False,
        compare=False,
    )
    """Encodes prompts: a long one takes half a second, in which probes must be answered."""

    def app(self) -> Starlette:
        """Return the application with its routes."""
        return Starlette(
            routes=[
                Route(CHAT, self.guarded(self.chat), methods=["POST"]),
                Route("/v1/models", self.guarded(self.models), methods=["GET"]),
                Route("/v1/models/{name}", self.guarded(self.model), methods=["GET"]),
                Route("/healthz", self.alive, methods=["GET"]),
                Route("/readyz", self.ready, methods=["GET"]),
                Route("/metrics", self.measured, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _unknown},
        )

    def guarded(self, handler: Handler) -> Handler:
        """Return a handler that checks the key, counts the request and reports errors."""

        async def respond(request: Request) -> Response:
            begun = time.monotonic()
            try:
                self.keys.check(request.headers.get("authorization", ""))
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
            self.metrics.count_request(route, response.status_code, seconds)
            return response

        return respond

    async def chat(self, request: Request) -> Response:
        """Answer a conversation or a row."""
        body = parse_body(await _read_body(request))
        loop = asyncio.get_running_loop()
        with self.limit.place():
            question = await loop.run_in_executor(self._encoding, self.ensemble.question, body)
            answer = self.answering.answer(body.model, question)
            prediction = await _while_connected(request, answer)
        self.metrics.count_answer(prediction)
        if body.stream:
            events = b"".join(chat_events(body, question, prediction))
            return Response(events, media_type="text/event-stream")
        return JSONResponse(chat_completion(body, question, prediction))

    async def models(self, _request: Request) -> Response:
        """List the ensemble and its experts."""
        return JSONResponse({"object": "list", "data": [*map(self._model, self.ensemble.models)]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.ensemble.require_model(name)
        return JSONResponse(self._model(name))

    async def alive(self, _request: Request) -> Response:
        """Tell whether the process works: the liveness probe."""
        return _state(is_good=self.answering.is_alive)

    async def ready(self, _request: Request) -> Response:
        """Tell whether requests are answered: the readiness and startup probe."""
        return _state(is_good=self.answering.is_ready)

    async def measured(self, _request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    def _model(self, name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "modnorm",
            "modnorm": {"candidates": list(self.ensemble.models[name].indices)},
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


def _state(*, is_good: bool) -> Response:
    return JSONResponse({"status": "ok" if is_good else "unavailable"}, 200 if is_good else 503)


async def _unknown(request: Request, error: Exception) -> Response:
    """Report an unknown address or method in OpenAI's form."""
    unknown = cast("HTTPException", error)  # it handles no others
    message = f"there is no {request.method[:16]} {request.url.path[:128]}"
    return ApiError(unknown.status_code, message, headers=unknown.headers or {}).response()
