"""A cheap client of one gRPC stream, with the part of HTTP/2 that one stream needs.

`grpc.aio` spends as much on a call as the server that answers it, and a thousand simulated
evaluators share two cores with that server. A connection holds one stream without TLS. The
server's headers are not read, except the end of the stream.
"""

import asyncio
import struct
from typing import Self

from typing_extensions import override

from modnorm.errors import UnavailableError

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 0x1, 0x1, 0x4
_INITIAL_WINDOW = 4
"""Number of the setting: bytes that a new stream may be sent."""
_FRAME_BYTES = 16_384
"""Bytes of the largest frame that every peer accepts."""
_DEFAULT_WINDOW = 65_535
_OWN_WINDOW = 2**31 - 1
"""Flow-control window of the server, larger than any run needs."""
_PREFIX = struct.Struct(">BI")
_HEAD = struct.Struct(">HBBBI")
"""Length (two bytes and one), type, flags and stream of a frame."""
_SETTING = struct.Struct(">HI")
_NUMBER = struct.Struct(">I")


class LeanStream(asyncio.Protocol):
    """One bidirectional call; each message gets one response."""

    def __init__(self, opening: bytes) -> None:
        self._opening = opening
        self._received = bytearray()
        self._message = bytearray()
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = {0: _DEFAULT_WINDOW, 1: _DEFAULT_WINDOW}
        self._initial = _DEFAULT_WINDOW
        self._more_room = asyncio.Event()
        self._ended = False
        self._transport: asyncio.WriteTransport | None = None

    @classmethod
    async def open(cls, target: str, path: str) -> Self:
        """Connect to HOST:PORT and begin a call of a method by its full path."""
        host, _, port = target.rpartition(":")
        opening, loop = _opening(target, path), asyncio.get_running_loop()
        _, stream = await loop.create_connection(lambda: cls(opening), host, int(port))
        return stream

    async def call(self, message: bytes) -> bytes:
        """Send a message; return the response.

        Raises:
            UnavailableError: the stream has ended.
        """
        content = _PREFIX.pack(0, len(message)) + message
        while content and not self._ended:
            size = min(len(content), _FRAME_BYTES, *self._room.values())
            if size <= 0:
                self._more_room.clear()
                await self._more_room.wait()
                continue
            self._write(_frame(_DATA, 0, 1, content[:size]))
            self._room = {place: room - size for place, room in self._room.items()}
            content = content[size:]
        answer = None if self._ended else await self._answers.get()
        if answer is None:
            raise UnavailableError("the stream has ended")
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._write(self._opening)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    @override
    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        start = 0
        while len(received) - start >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(received, start)
            body = start + _HEAD.size
            end = body + (high << 8 | low)
            if len(received) < end:
                break
            self._take(kind, flags, stream, bytes(received[body:end]))
            start = end
        del received[:start]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        """Handle a frame."""
        if kind == _DATA:
            self._message += payload
            self._take_messages()
        elif kind == _WINDOW:
            self._widen(stream, _NUMBER.unpack(payload)[0])
        elif kind == _SETTINGS and not flags & _ACK:
            for setting, value in _SETTING.iter_unpack(payload):
                if setting == _INITIAL_WINDOW:
                    self._widen(1, value - self._initial)
                    self._initial = value
            self._write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._write(_frame(_PING, _ACK, 0, payload))
        if kind in {_RESET, _GOAWAY} or (kind in {_DATA, _HEADERS} and flags & _END_STREAM):
            self._end()

    def _take_messages(self) -> None:
        message = self._message
        while len(message) >= _PREFIX.size:
            end = _PREFIX.size + _PREFIX.unpack_from(message)[1]
            if len(message) < end:
                return
            self._answers.put_nowait(bytes(message[_PREFIX.size : end]))
            del message[:end]

    def _widen(self, stream: int, size: int) -> None:
        self._room[stream] += size
        self._more_room.set()

    def _end(self) -> None:
        self._ended = True
        self._answers.put_nowait(None)
        self._more_room.set()

    def _write(self, content: bytes) -> None:
        if self._transport is not None:
            self._transport.write(content)


def _opening(target: str, path: str) -> bytes:
    """Return the bytes that open a connection and its one call."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": target,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, _SETTING.pack(_INITIAL_WINDOW, _OWN_WINDOW))
        + _frame(_WINDOW, 0, 0, _NUMBER.pack(_OWN_WINDOW - _DEFAULT_WINDOW))
        + _frame(_HEADERS, _END_HEADERS, 1, b"".join(map(_literal, headers, headers.values())))
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """Encode a header without indexing, each part at most 126 bytes long."""
    parts = (name.encode(), value.encode())
    return b"\0" + b"".join(bytes((len(part),)) + part for part in parts)
