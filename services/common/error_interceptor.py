"""Interceptor that maps errors of servicers to status codes with details."""

from __future__ import annotations

import asyncio
import inspect
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from modnorm.errors import InvalidInputError, ModnormError
from modnorm.wire.status import to_status
from services.common.interceptor import Interceptor
from services.common.logging import internal_error

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Decode = Callable[[bytes], RequestT]
_Behaviour = Callable[..., object]
_Read = Callable[..., object]

if TYPE_CHECKING:
    from google.rpc import status_pb2

    Context = grpc.aio.ServicerContext[bytes, ResponseT]

MAX_MESSAGE_BYTES = 1500
"""Bytes of an error's message in UTF-8. A status is sent twice, with up to 3 and 4/3 bytes per
byte, and must fit 8 KiB of metadata: gRPC sometimes drops larger ones."""

logger = logging.getLogger(__name__)


class ErrorInterceptor(Interceptor):
    """Maps errors of servicers to a status, and undecodable requests to INVALID_ARGUMENT.

    `modnorm.wire.status` maps `ModnormError`. Any other error is a defect: it is logged with its
    traceback under an id, and the caller gets INTERNAL with only the id. Requests are decoded
    here, since gRPC would report an undecodable request as a server error.
    Servicers are asynchronous: coroutines, and for streamed responses asynchronous generators or
    coroutines that write to the context.
    """

    def __init__(self) -> None:
        super().__init__(_guarded)


def _guarded(
    handler: grpc.RpcMethodHandler[RequestT, ResponseT], method: str
) -> grpc.RpcMethodHandler[RequestT, ResponseT]:
    """Return a handler of the same kind that decodes requests and maps errors."""
    decode = handler.request_deserializer or bytes
    serialize = handler.response_serializer
    if handler.unary_unary:
        answer = _unary(handler.unary_unary, decode, method, _decode_one)
        return grpc.unary_unary_rpc_method_handler(answer, response_serializer=serialize)
    if handler.stream_unary:
        answer = _unary(handler.stream_unary, decode, method, _decode_stream)
        return grpc.stream_unary_rpc_method_handler(answer, response_serializer=serialize)
    if handler.unary_stream:
        stream = _stream(handler.unary_stream, decode, method, _decode_one)
        return grpc.unary_stream_rpc_method_handler(stream, response_serializer=serialize)
    stream = _stream(cast("_Behaviour", handler.stream_stream), decode, method, _decode_stream)
    return grpc.stream_stream_rpc_method_handler(stream, response_serializer=serialize)


def _unary(
    behaviour: _Behaviour,
    decode: Decode[RequestT],
    method: str,
    read: _Read,
) -> Callable[[object, Context[ResponseT]], Awaitable[ResponseT]]:
    async def answer(raw: object, context: Context[ResponseT]) -> ResponseT:
        try:
            return await cast("Awaitable[ResponseT]", behaviour(read(raw, decode), context))
        except Exception as error:  # noqa: BLE001 - the one place that maps every error
            await _abort(error, context, method)

    return answer


def _stream(
    behaviour: _Behaviour,
    decode: Decode[RequestT],
    method: str,
    read: _Read,
) -> Callable[[object, Context[ResponseT]], AsyncIterator[ResponseT]]:
    async def stream(raw: object, context: Context[ResponseT]) -> AsyncIterator[ResponseT]:
        try:
            responses = behaviour(read(raw, decode), context)
            if inspect.isawaitable(responses):
                await responses
                return
            async for response in cast("AsyncIterator[ResponseT]", responses):
                yield response
        except Exception as error:  # noqa: BLE001 - the one place that maps every error
            await _abort(error, context, method)

    return stream


def _decode_one(raw: bytes, decode: Decode[RequestT]) -> RequestT:
    try:
        return decode(raw)
    except DecodeError as error:
        raise InvalidInputError(f"the request cannot be decoded: {error}") from error


async def _decode_stream(
    raw: AsyncIterator[bytes], decode: Decode[RequestT]
) -> AsyncIterator[RequestT]:
    async for message in raw:
        yield _decode_one(message, decode)


async def _abort(error: Exception, context: Context[ResponseT], method: str) -> NoReturn:
    """End the call with the status of an error."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    status = rpc_status.to_status(described(error, method))
    try:
        await context.abort(status.code, status.details, status.trailing_metadata)
    except grpc.aio.InternalError:
        # gRPC has ended the call, because a message is too large or the caller disconnected.
        raise asyncio.CancelledError from None


def described(error: Exception, method: str) -> status_pb2.Status:
    """Return the status of a call that raised an error; log a defect under an id."""
    if not isinstance(error, ModnormError):
        error = _defect(error, method)
    message = error.message.encode(errors="replace")
    if len(message) > MAX_MESSAGE_BYTES:
        error.message = f"{message[:MAX_MESSAGE_BYTES].decode(errors='ignore')} [...]"
    return to_status(error)


def _defect(error: Exception, method: str) -> ModnormError:
    """Log an unexpected error under an id; return the error with this id for the caller."""
    error_id = uuid.uuid4().hex
    logger.error(
        "unexpected error", exc_info=error, extra={"error_id": error_id, "method": method}
    )
    return ModnormError(internal_error(error_id))
