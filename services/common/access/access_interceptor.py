"""The interceptor that admits or refuses calls."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import grpc
import grpc.aio

from modnorm.errors import (
    ModnormError,
    RateLimitedError,
    UnauthenticatedError,
)
from modnorm.v1.evaluation_pb2 import WorkRequest
from modnorm.wire.channel import AUTHORIZATION
from services.common.access.call_permissions import ALLOWED, OPEN
from services.common.access.callers import ANYONE, Caller, set_caller
from services.common.access.rate_limits import RateLimits, StreamLimits
from services.common.access.token_gate import TokenGate

if TYPE_CHECKING:
    from services.common.settings import ServiceSettings

    Context = grpc.aio.ServicerContext[bytes, bytes]

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Metadata = Sequence[tuple[str, str | bytes]]

_SCHEME = "bearer "
_LOGGED_A_SECOND = 10.0
"""Most refusals logged per second, so that repeated calls cannot fill the disk."""
_REMEDY = "set MODNORM_TOKEN, or MODNORM_TOKEN_FILE, to a token of this lab"

logger = logging.getLogger(__name__)


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # only in its stubs
    """Admits a call if its token is valid, has a sufficient role and is within its rate.

    Streams may last for days, during which tokens expire and are revoked. The token is checked at
    each request of a stream, whose calls all count, and at each response of a response stream. The
    number of open streams per token is limited.

    The `ErrorInterceptor` around it converts errors that are raised here to a status.

    Raises:
        InvalidInputError: the file of accepted tokens cannot be read.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._gate = TokenGate(settings)
        self._logged = RateLimits()
        self._streams = StreamLimits(settings.stream_limit)

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[RequestT, ResponseT]]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT]:
        """Return the handler of a call, or a handler that refuses it."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(OPEN):
            return handler
        try:
            caller = self._let_in(method, handler_call_details.invocation_metadata)
        except ModnormError as error:
            return self._refusal(error, method)
        set_caller(caller)
        if not handler.response_streaming:
            return handler
        return self._checking(handler, handler_call_details, caller)

    def _checking(
        self,
        handler: grpc.RpcMethodHandler[RequestT, ResponseT],
        call: grpc.HandlerCallDetails,
        caller: Caller,
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT]:
        """Return the handler of a stream that ends once its token is no longer valid.

        Streamed requests are admitted one by one; otherwise the token is checked before each
        response.
        """
        streamed = handler.unary_stream or handler.stream_stream
        behaviour = cast("Callable[..., AsyncIterator[ResponseT]]", streamed)

        async def answers(request: RequestT, context: Context) -> AsyncIterator[ResponseT]:
            with self._held(caller, call, context):
                async for answer in behaviour(request, context):
                    self._let_in_or_log(call, context, calls=0)
                    yield answer

        async def answers_of_many(
            requests: AsyncIterator[RequestT], context: Context
        ) -> AsyncIterator[ResponseT]:
            with self._held(caller, call, context):
                async for answer in behaviour(self._each_let_in(requests, call, context), context):
                    yield answer

        decode, serialise = handler.request_deserializer, handler.response_serializer
        made = (
            grpc.stream_stream_rpc_method_handler(answers_of_many, decode, serialise)
            if handler.request_streaming
            else grpc.unary_stream_rpc_method_handler(answers, decode, serialise)
        )
        return cast("grpc.RpcMethodHandler[RequestT, ResponseT]", made)

    async def _each_let_in(
        self, requests: AsyncIterator[RequestT], call: grpc.HandlerCallDetails, context: Context
    ) -> AsyncIterator[RequestT]:
        counted = 1  # the first call was counted when the stream was admitted
        async for request in requests:
            self._let_in_or_log(call, context, calls=_calls_in(request) - counted)
            counted = 0
            yield request

    @contextmanager
    def _held(
        self, caller: Caller, call: grpc.HandlerCallDetails, context: Context
    ) -> Iterator[None]:
        """Count a stream of a token inside the context."""
        if self._gate.open:
            yield
            return
        with ExitStack() as held:
            try:
                held.enter_context(self._streams.held(caller.name))
            except RateLimitedError as error:
                self._log(error, call.method, context.peer())
                raise
            yield

    def _let_in_or_log(
        self, call: grpc.HandlerCallDetails, context: Context, *, calls: int
    ) -> None:
        try:
            self._let_in(call.method, call.invocation_metadata, calls=calls)
        except ModnormError as error:
            self._log(error, call.method, context.peer())
            raise

    def _let_in(self, method: str, metadata: Metadata, *, calls: int = 1) -> Caller:
        if self._gate.open:
            return ANYONE
        allowed = ALLOWED.get(method, frozenset())
        return self._gate.admit(_bearer(metadata), method, allowed, calls=calls)

    def _refusal(
        self, error: ModnormError, method: str
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT]:
        async def refuse(_: object, context: Context) -> NoReturn:
            self._log(error, method, context.peer())
            raise error

        # Streamed requests stay unread, so that no byte of the caller is processed.
        return grpc.stream_unary_rpc_method_handler(refuse)

    def _log(self, error: ModnormError, method: str, peer: str) -> None:
        try:
            self._logged.take("", _LOGGED_A_SECOND)
        except RateLimitedError:
            return
        logger.warning("refused: %s", error.message, extra={"method": method, "peer": peer})


def _calls_in(request: object) -> int:
    """Return the number of calls in one message of a stream, at least 1."""
    return max(1, len(request.calls)) if isinstance(request, WorkRequest) else 1


def _bearer(metadata: Metadata) -> str:
    """Return the token of a call.

    Raises:
        UnauthenticatedError: there is no token or more than one.
    """
    values = [value for key, value in metadata if key == AUTHORIZATION]
    if len(values) != 1:
        raise UnauthenticatedError("a token is needed", remedy=_REMEDY)
    text = values[0] if isinstance(values[0], str) else values[0].decode(errors="replace")
    if not text.lower().startswith(_SCHEME):
        raise UnauthenticatedError("a bearer token is needed", remedy=_REMEDY)
    return text[len(_SCHEME) :].strip()
