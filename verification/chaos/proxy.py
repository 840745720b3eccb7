"""TCP links between the processes of a lab: a proxy in a separate thread can cut them."""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum
from typing import Self, TypeVar

from verification.labs.waiting import HANG_SECONDS

_CHUNK = 65_536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: closing sends a reset."""

ResultT = TypeVar("ResultT")


class Mode(StrEnum):
    """How a link treats its connections."""

    PASS = "pass"
    STALL = "stall"
    """Bytes are held in both directions and delivered later: a short partition."""
    RESET = "reset"
    """Present and new connections are reset."""
    DEAF = "deaf"
    """Requests arrive, responses are lost; later connections are reset: a half-open link."""


class Link:
    """One listening address in front of another."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.address = ""
        """HOST:PORT to connect to."""
        self._target = target
        self._server: asyncio.Server | None = None
        self._mode = Mode.PASS
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Start to accept connections."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def turn(self, mode: Mode) -> None:
        """Change the treatment of present and later connections."""
        if mode is Mode.RESET or self._mode is Mode.DEAF:
            for writer in tuple(self._open):
                _reset(writer)
        self._mode = mode
        if mode is Mode.STALL:
            self._flowing.clear()
        else:
            self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            await self._flowing.wait()
            if self._mode is not Mode.RESET:
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the link is cut, or the lab ends
        finally:
            self._open.discard(writer)
            _reset(writer)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(*self._target)
        self._open.add(behind_writer)
        pumps = [
            asyncio.create_task(self._pump(reader, behind_writer, answers=False)),
            asyncio.create_task(self._pump(behind_reader, writer, answers=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._open.discard(behind_writer)
            behind_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await reader.read(_CHUNK):
            await self._flowing.wait()
            if answers and self._mode is Mode.DEAF:
                continue
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock: socket.socket | None = writer.get_extra_info("socket")
    with suppress(OSError):
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


class Proxy:
    """All links of a lab."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self.links: dict[str, Link] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self.links.values():
            self._run(link.close())
        self._run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, name: str, target: str) -> Link:
        """Add a link in front of HOST:PORT."""
        behind, _, port = target.rpartition(":")
        link = Link((behind, int(port)))
        self._run(link.listen())
        self.links[name] = link
        return link

    def turn(self, name: str, mode: Mode) -> None:
        self._run(self.links[name].turn(mode))

    def _run(self, work: Coroutine[object, object, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=HANG_SECONDS)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
