"""The interceptor of a server: it admits, decodes, names and measures calls, and maps errors."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from grpc_status import rpc_status
from structlog.contextvars import bind_contextvars

from modnorm.errors import InvalidInputError, ModnormError, UnauthenticatedError
from modnorm.services.common.access import ALLOWED, OPEN, set_caller
from modnorm.services.common.logging import internal_error
from modnorm.services.common.metrics import CallMetrics, code_name
from modnorm.wire.connection import AUTHORIZATION, Metadata
from modnorm.wire.status import to_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from google.rpc import status_pb2

    from modnorm.services.common.access import TokenGate

    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]

MAX_MESSAGE_BYTES = 1500
"""Bytes of an error's message in UTF-8. A status is sent twice, with up to 3 and 4/3 bytes per
byte, and must fit 8 KiB of metadata: gRPC sometimes drops larger ones."""
MAX_NAME = 64
"""Most characters of an id in the log, since callers choose ids."""
LOG_SECONDS = 0.1
"""Least time between two logged refusals, so that repeated calls cannot fill the disk."""
_SCHEME = "bearer "
_REMEDY = "set MODNORM_TOKEN, or MODNORM_TOKEN_FILE, to a token of this lab"
_NAMED = {
    "experiment_id": "experiment",
    "id": "experiment",
    "job_id": "job",
    "worker": "worker",
    "request_id": "request",
}
"""Name in the log of each field of a request or of its lease that holds an id."""

logger = logging.getLogger(__name__)


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # only in its stubs
    """The one interceptor of a server.

    A call is admitted by its token before a byte of its request is read. Streams may last for
    days, during which tokens expire and are revoked: the token is checked again at each streamed
    response, and at each request of reflection, the only stream of both directions.

    `modnorm.wire.status` maps a `ModnormError`. Any other error is a defect: it is logged with its
    traceback under an id, and the caller gets INTERNAL with only the id. Servicers are coroutines,
    and for streamed responses asynchronous generators or coroutines that write to the context.
    """

    def __init__(self, gate: TokenGate, measured: CallMetrics) -> None:
        self._gate = gate
        self._measured = measured
        self._logged = 0.0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return the wrapped handler of a call; unknown methods stay unimplemented."""
        handler = await continuation(handler_call_details)
        if not handler:
            return handler
        method, metadata = handler_call_details.method, handler_call_details.invocation_metadata
        try:
            self.admit(method, metadata)
        except ModnormError as error:
            return self._refusal(error, method)
        call, serializer = _Call(self, handler, method, metadata), handler.response_serializer
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                call.exchange, response_serializer=serializer
            )
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                call.stream, response_serializer=serializer
            )
        return grpc.unary_unary_rpc_method_handler(call.answer, response_serializer=serializer)

    def admit(self, method: str, metadata: Metadata) -> None:
        """Check the token of a call and set its caller."""
        if method.startswith(OPEN):
            return
        token = "" if self._gate.open else _bearer(metadata)
        set_caller(self._gate.admit(token, method, ALLOWED.get(method, frozenset())))

    def _refusal(self, error: ModnormError, method: str) -> Handler:
        async def refuse(_: object, context: Context) -> None:
            async with self.running(context, method):
                self.log(error, method, context)
                raise error

        # Streamed requests stay unread, so that no byte of the caller is processed.
        return grpc.stream_unary_rpc_method_handler(refuse)

    @asynccontextmanager
    async def running(self, context: Context, method: str) -> AsyncIterator[None]:
        """Measure a call, and end it with the status of an error."""
        _, service, name = method.split("/", 2)
        start, code = time.perf_counter(), "OK"
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            code = "CANCELLED"
            raise
        except grpc.aio.AbortError:
            code = code_name(context.code())
            raise
        except Exception as error:  # noqa: BLE001 - the one place that maps every error
            status = described(error, method)
            code = code_name(status.code)
            await _abort(status, context)
        finally:
            self._measured.ended(service, name, code, time.perf_counter() - start)

    def log(self, error: ModnormError, method: str, context: Context) -> None:
        """Log a refusal, unless another one was logged just now."""
        now = time.monotonic()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            extra = {"method": method, "peer": context.peer()}
            logger.warning("refused: %s", error.message, extra=extra)


class _Call:
    """One call: reads its requests and passes them to the handler."""

    def __init__(
        self, interceptor: CallInterceptor, handler: Handler, method: str, metadata: Metadata
    ) -> None:
        self._interceptor = interceptor
        self._handler = handler
        self._method = method
        self._metadata = metadata
        self._behaviour = cast(
            "Callable[..., Any]",
            handler.unary_unary or handler.unary_stream or handler.stream_stream,
        )

    async def answer(self, raw: bytes, context: Context) -> object:
        async with self._interceptor.running(context, self._method):
            return await self._behaviour(self._decoded(raw), context)

    async def stream(self, raw: bytes, context: Context) -> AsyncIterator[object]:
        async with self._interceptor.running(context, self._method):
            responses = self._behaviour(self._decoded(raw), context)
            if inspect.isawaitable(responses):
                await responses
                return
            async for response in responses:
                self._check_again(context)
                yield response

    async def exchange(self, raw: AsyncIterator[bytes], context: Context) -> AsyncIterator[object]:
        """Yield the responses to a stream of requests."""
        async with self._interceptor.running(context, self._method):
            async for response in self._behaviour(self._decoded_stream(raw, context), context):
                yield response

    async def _decoded_stream(
        self, raw: AsyncIterator[bytes], context: Context
    ) -> AsyncIterator[object]:
        async for message in raw:
            self._check_again(context)
            yield self._decoded(message)

    def _decoded(self, raw: bytes) -> object:
        """Decode a request; gRPC would report an undecodable one as a server error."""
        decode = self._handler.request_deserializer or bytes
        try:
            request = decode(raw)
        except DecodeError as error:
            raise InvalidInputError(f"the request cannot be decoded: {error}") from error
        if self._method.startswith("/modnorm.") and isinstance(request, Message):
            bind_contextvars(**names_of(request))
        return request

    def _check_again(self, context: Context) -> None:
        try:
            self._interceptor.admit(self._method, self._metadata)
        except ModnormError as error:
            self._interceptor.log(error, self._method, context)
            raise


def _bearer(metadata: Metadata) -> str:
    """Return the token of a call."""
    values = [value for key, value in metadata if key == AUTHORIZATION]
    if len(values) != 1:
        raise UnauthenticatedError("a token is needed", remedy=_REMEDY)
    text = values[0] if isinstance(values[0], str) else values[0].decode(errors="replace")
    if not text.lower().startswith(_SCHEME):
        raise UnauthenticatedError("a bearer token is needed", remedy=_REMEDY)
    return text[len(_SCHEME) :].strip()


async def _abort(status: status_pb2.Status, context: Context) -> NoReturn:
    found = rpc_status.to_status(status)
    try:
        await context.abort(found.code, found.details, found.trailing_metadata)
    except grpc.aio.InternalError:
        # gRPC has ended the call, because a message is too large or the caller disconnected.
        raise asyncio.CancelledError from None


def described(error: Exception, method: str) -> status_pb2.Status:
    """Return the status of a call that raised an error; log a defect under an id."""
    if not isinstance(error, ModnormError):
        error_id = uuid.uuid4().hex
        logger.error(
            "unexpected error", exc_info=error, extra={"error_id": error_id, "method": method}
        )
        error = ModnormError(internal_error(error_id))
    message = error.message.encode(errors="replace")
    if len(message) > MAX_MESSAGE_BYTES:
        error.message = f"{message[:MAX_MESSAGE_BYTES].decode(errors='ignore')} [...]"
    return to_status(error)


def names_of(request: Message) -> Mapping[str, str | int]:
    """Return the ids in a request by their names in the log."""
    lease = getattr(request, "lease", None)
    fields = [*request.ListFields(), *(lease.ListFields() if isinstance(lease, Message) else ())]
    return {
        _NAMED[field.name]: value[:MAX_NAME]
        for field, value in fields
        if field.name in _NAMED and isinstance(value, str)
    }
