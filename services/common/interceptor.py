"""Interceptors that wrap the handler of each method once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import grpc
import grpc.aio

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Enter = Callable[[RequestT, object], AbstractContextManager[RequestT]]
"""Takes a request (an iterator if streamed) and the call's context; yields the request for the
handler."""

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[RequestT, ResponseT]
    Handler = grpc.RpcMethodHandler[RequestT, ResponseT]


class Wrap(Protocol):
    """Wraps a handler."""

    def __call__(
        self, handler: Handler[RequestT, ResponseT], method: str, /
    ) -> Handler[RequestT, ResponseT]:
        """Return a wrapped handler of the same kind, given a handler and its method's name."""


class Interceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # only in its stubs
    """Wraps each handler of a server once and caches it; unknown methods stay unimplemented."""

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap
        self._wrapped: dict[str, tuple[object, Handler[Any, Any]]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler[RequestT, ResponseT]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler[RequestT, ResponseT]:
        """Return the wrapped handler of a call, cached by method."""
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if not handler:
            return handler
        kept = self._wrapped.get(method)
        if kept is None or kept[0] is not handler:
            kept = self._wrapped[method] = (handler, self._wrap(handler, method))
        return kept[1]


def surrounded(
    handler: Handler[RequestT, ResponseT], enter: Enter[RequestT]
) -> Handler[RequestT, ResponseT]:
    """Return a handler of the same kind whose calls run inside a context manager."""
    unary = handler.unary_unary or handler.stream_unary
    streamed = handler.unary_stream or handler.stream_stream

    async def answer(request: RequestT, context: Context[RequestT, ResponseT]) -> ResponseT:
        behaviour = cast("Callable[..., Awaitable[ResponseT]]", unary)
        with enter(request, context) as entered:
            return await behaviour(entered, context)

    async def stream(
        request: RequestT, context: Context[RequestT, ResponseT]
    ) -> AsyncIterator[ResponseT]:
        behaviour = cast("Callable[..., AsyncIterator[ResponseT]]", streamed)
        with enter(request, context) as entered:
            async for response in behaviour(entered, context):
                yield response

    wrapped = stream if handler.response_streaming else answer
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return cast(
        "Handler[RequestT, ResponseT]",
        make(wrapped, handler.request_deserializer, handler.response_serializer),
    )
