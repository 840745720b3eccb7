"""The conversation with one program: steps out, values in, its end from its warden."""

import contextlib
import json
import select
import socket
import struct
import time
from types import TracebackType
from typing import Self

from modnorm.errors import EngineError
from modnorm.sandbox.jail.jail_messages import READY, EndReason, ProgramBounds, WardenReport
from modnorm.sandbox.jail.warden import SETUP_SECONDS
from modnorm.sandbox.program import Limits, Verdict
from modnorm.sandbox.value_decoding import MalformedValueError, decode
from modnorm.sandbox.zygote_client import ZygoteClient, cpu_wait_seconds

_HEADER = struct.Struct(">I")
_CONTROL_BYTES = 65536
_GRACE_SECONDS = 5.0
_ENDING_SECONDS = 1.0
_PATIENCE = 3.0
"""How many times its wall time a program may live, if others have the cores meanwhile."""


class StoppedError(Exception):
    """The program cannot go on.

    Attributes:
        verdict: What came of it; None when its end alone says that.
        detail: Why.
    """

    def __init__(self, verdict: Verdict | None, detail: str) -> None:
        super().__init__(detail)
        self.verdict = verdict
        self.detail = detail


class ProgramSession:
    """One program's process, from its start to its end.

    Limits of time count what the program had of the machine: what it waits for a core comes on
    top, so that the same program gets the same verdict beside others.

    Attributes:
        report: What its warden said at the end; set when the context is left.
    """

    report: WardenReport

    def __init__(self, zygote: ZygoteClient, limits: Limits) -> None:
        bounds = ProgramBounds(
            memory_bytes=limits.memory_bytes,
            scratch_bytes=limits.scratch_bytes,
            output_bytes=limits.output_bytes,
            cpu_seconds=limits.wall_seconds,
            life_seconds=_PATIENCE * limits.wall_seconds + _GRACE_SECONDS,
            tasks=zygote.task_limit(limits.tasks),
        )
        self._limits = limits
        self._pid = 0
        self._deadline = self._end = 0.0
        self._channel, self._control = zygote.request(bounds)
        self._channel.settimeout(0)

    def __enter__(self) -> Self:
        try:
            said = self._from_warden(time.monotonic() + SETUP_SECONDS + _GRACE_SECONDS)
            self._pid = _ready_pid(said)
        except BaseException:
            self._close()
            raise
        self._deadline = self._now() + self._limits.wall_seconds
        self._end = time.monotonic() + _PATIENCE * self._limits.wall_seconds
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the program and hear its warden.

        Raises:
            EngineError: the warden is gone, so that nothing is known.
        """
        try:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
            self.report = _parse(self._from_warden(time.monotonic() + _GRACE_SECONDS))
        finally:
            self._close()

    def _close(self) -> None:
        self._channel.close()
        self._control.close()

    def _from_warden(self, deadline: float) -> bytes:
        self._control.settimeout(max(0.0, deadline - time.monotonic()))
        try:
            data = self._control.recv(_CONTROL_BYTES)
        except OSError as error:
            raise EngineError(f"a warden does not answer: {error}") from error
        if not data:
            raise EngineError("a warden ended without a word")
        return data

    def witness(self) -> socket.socket:
        """Return the channel anew: it reaches its end when no process holds the other side."""
        return self._channel.dup()

    def run(self, source: str) -> None:
        """Run statements in the program's namespace.

        Raises:
            StoppedError: they raised, or the program is over.
        """
        self._step({"run": source})

    def ask(self, source: str) -> object:
        """Return the plain value of an expression in the program's namespace.

        Raises:
            StoppedError: it raised, the answer is no value, or the program is over.
        """
        reply = self._step({"value": source})
        try:
            return decode(reply.get("value"))
        except MalformedValueError as error:
            raise StoppedError(Verdict.FAILED, str(error)) from error

    def _step(self, request: dict[str, str]) -> dict[str, object]:
        deadline = min(self._now() + self._limits.step_seconds, self._deadline)
        data = json.dumps(request).encode()
        self._send(_HEADER.pack(len(data)) + data, deadline)
        header = self._receive(_HEADER.size, deadline)
        (size,) = _HEADER.unpack(header)
        if size > self._limits.memory_bytes or _is_text(header):
            spoken = f"its answer begins with {header!r}"
            raise StoppedError(
                Verdict.FAILED, f"the program does not speak the sandbox's protocol: {spoken}"
            )
        if size > self._limits.output_bytes:
            raise StoppedError(Verdict.OUTPUT, f"an answer of {size} bytes")
        try:
            reply = json.loads(self._receive(size, deadline))
        except (ValueError, RecursionError) as error:
            raise StoppedError(Verdict.FAILED, "the answer is not JSON") from error
        if not isinstance(reply, dict):
            raise StoppedError(Verdict.FAILED, "the answer is not an object")
        if "raised" in reply:
            verdict = Verdict.MEMORY if reply.get("memory") else Verdict.FAILED
            raise StoppedError(verdict, str(reply["raised"])[:500])
        return reply

    def _await(self, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._channel, event)
        poll.register(self._control, select.POLLIN)
        ready = dict(poll.poll(0))
        while not ready:
            ready = dict(poll.poll(self._left(deadline) * 1000))
        if self._channel.fileno() not in ready:
            raise StoppedError(None, "the program is over")

    def _now(self) -> float:
        """Return the time on a clock that stands still while the program waits for a core."""
        return time.monotonic() - cpu_wait_seconds(self._pid)

    def _left(self, deadline: float) -> float:
        """Return how long to wait at most before looking again.

        Raises:
            StoppedError: the program had its time.
            EngineError: it did not get it. This is no verdict.
        """
        left, rest = deadline - self._now(), self._end - time.monotonic()
        if left <= 0:
            whole = f"not done after {self._limits.wall_seconds:g} s"
            is_last = deadline == self._deadline
            raise StoppedError(Verdict.TIMEOUT, whole if is_last else "a step took too long")
        if rest <= 0:
            raise EngineError("the machine is too busy: a program does not get its time")
        return min(left, rest)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._await(select.POLLOUT, deadline)
            try:
                view = view[self._channel.send(view) :]
            except OSError as error:
                raise self._over() from error

    def _receive(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._await(select.POLLIN, deadline)
            try:
                part = self._channel.recv(size - len(data))
            except OSError as error:
                raise self._over() from error
            if not part:
                raise self._over()
            data += part
        return bytes(data)

    def _over(self) -> StoppedError:
        """Return what to raise when the channel is closed, once its process has ended too.

        Files close before a process can be waited for: a dismissal now would hide its end.
        """
        select.select([self._control], [], [], _ENDING_SECONDS)
        return StoppedError(None, "the program closed its channel")


def _is_text(header: bytes) -> bool:
    """Whether a header is printable ASCII: as a size it would be more than 512 MiB."""
    return header.isascii() and header.decode("ascii").isprintable()


def _ready_pid(said: bytes) -> int:
    if not said.startswith(READY):
        raise EngineError(f"the fences did not come up: {_parse(said).printed[-500:]}")
    return int(said.removeprefix(READY))


def _parse(data: bytes) -> WardenReport:
    report = WardenReport(**json.loads(data))
    return WardenReport(EndReason(report.end), report.code, report.cpu_seconds, report.printed)
