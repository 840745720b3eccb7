"""Interceptor that adds the ids in a request to its log lines."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from google.protobuf.message import Message
from structlog.contextvars import bind_contextvars

from services.common.interceptor import Interceptor, surrounded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    import grpc

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

MAX_NAME = 64
"""Most characters of an id in the log, since callers choose ids."""
_FIELDS = {
    "experiment": ("experiment_id", "id"),
    "job": ("job_id", "lease.job_id", "header.lease.job_id"),
    "worker": ("worker", "header.worker"),
    "candidate": ("candidate",),
    "request": ("request_id",),
}


class CallNames(Interceptor):
    """Binds the ids of decoded requests to the log; the last interceptor of a server.

    gRPC runs each call in a separate task, so the binding ends with the call. It is not removed
    earlier, because the line about a failed call is logged later.
    """

    def __init__(self) -> None:
        super().__init__(_naming)


def _naming(
    handler: grpc.RpcMethodHandler[RequestT, ResponseT], method: str
) -> grpc.RpcMethodHandler[RequestT, ResponseT]:
    """Bind the ids of calls to this project's services.

    Calls on a bidirectional stream are bound where they are answered.
    """
    if not method.startswith("/modnorm.") or (
        handler.request_streaming and handler.response_streaming
    ):
        return handler
    return surrounded(handler, _named)


@contextmanager
def _named(request: RequestT, _context: object) -> Iterator[RequestT]:
    if isinstance(request, Message):
        bind_contextvars(**names_of(request))
        yield request
    else:
        yield cast("RequestT", _first_named(cast("AsyncIterator[Message]", request)))


async def _first_named(requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
    named = False
    async for request in requests:
        if not named:
            bind_contextvars(**names_of(request))
            named = True
        yield request


def names_of(request: Message) -> Mapping[str, str | int]:
    """Return the ids in a request by their names in the log."""
    ids: dict[str, str | int] = {}
    for name, paths in _FIELDS.items():
        for path in paths:
            value = _value(request, path)
            if isinstance(value, int):
                ids[name] = value
            elif value:
                ids.setdefault(name, value[:MAX_NAME])
    return ids


def _value(message: Message, path: str) -> str | int | None:
    """Return a text or a number by its dotted path; None if it is absent."""
    value: object = message
    for step in path.split("."):
        if not isinstance(value, Message) or step not in value.DESCRIPTOR.fields_by_name:
            return None
        value = getattr(value, step)
    return value if isinstance(value, str | int) else None
