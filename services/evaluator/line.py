"""A worker's stream to the aggregator, opened when it is needed and again when it broke."""

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue

import grpc

from modnorm.errors import ModnormError, UnavailableError
from modnorm.v1.evaluation_pb2 import WorkRequest, WorkResponse
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub

Ride = tuple[WorkRequest, "Future[WorkResponse | None]"]
"""A call that waits for another to go with, and its answer; None where it was not heard."""


class Line:
    """One message after the other, from any thread; each waits for the answers before its own.

    Args:
        stub: A synchronous stub.
    """

    def __init__(self, stub: JobServiceStub) -> None:
        self._stub = stub
        self._lock = threading.Lock()
        self._stream: _Stream | None = None
        self._rides: deque[Ride] = deque()

    def call(self, request: WorkRequest, seconds: float, *, wait: float = 0.0) -> WorkResponse:
        """Return the answer to a call.

        Args:
            request: The call.
            seconds: How long the answer may take, and how long before that those to earlier calls.
            wait: Seconds for which the call may wait for one of another thread, to be one message
                with it.

        Raises:
            grpc.RpcError: the stream cannot be opened, or broke; the call may have been heard.
            UnavailableError: no answer came in time.
            InvalidInputError: the file of the token cannot be read.
        """
        answer = self._ride(request, wait) if wait and self._carries else None
        return self._send(request, seconds) if answer is None else answer

    @property
    def _carries(self) -> bool:
        """Whether a message may be of two calls, as far as is known."""
        return self._stream is None or self._stream.carries

    def _ride(self, request: WorkRequest, wait: float) -> WorkResponse | None:
        """Have a call go with the next one; None where none came, or it was not heard."""
        answer: Future[WorkResponse | None] = Future()
        self._rides.append((request, answer))
        try:
            return answer.result(wait)
        except TimeoutError:
            return None if answer.cancel() else answer.result()

    def _send(self, request: WorkRequest, seconds: float) -> WorkResponse:
        with self._turn(seconds):
            waiting = self._waiting()
            if waiting is None:
                return self._tried(request, seconds)
            other, answer = waiting
            request.also.CopyFrom(other)
            try:
                response = self._tried(request, seconds)
            except BaseException as error:
                answer.set_exception(error)
                raise
            heard = response.HasField("also")
            if self._stream is not None:
                self._stream.carries = heard
            answer.set_result(response.also if heard else None)
            return response

    @contextmanager
    def _turn(self, seconds: float) -> Iterator[None]:
        """Wait for the answers before; for no longer than one's own may take."""
        if not self._lock.acquire(timeout=seconds):
            raise _unanswered(seconds)
        try:
            yield
        finally:
            self._lock.release()

    def _waiting(self) -> Ride | None:
        """Take a call that waits for another, if there is one."""
        while self._rides:
            ride = self._rides.popleft()
            if ride[1].set_running_or_notify_cancel():
                return ride
        return None

    def _tried(self, request: WorkRequest, seconds: float) -> WorkResponse:
        """Return the answer to a message, which may need a new stream."""
        kept = self._stream is not None and not self._stream.ended
        try:
            return self._call(request, seconds)
        except grpc.RpcError as error:
            if not kept or not _was_let_in_before(error):
                raise
            # The token that the stream was opened with expired; a file may hold another.
            return self._call(request, seconds)

    def _call(self, request: WorkRequest, seconds: float) -> WorkResponse:
        stream = self._stream
        if stream is None or stream.ended:
            stream = self._stream = _Stream(self._stub)
        try:
            return stream.call(request, seconds)
        except (grpc.RpcError, ModnormError):
            self._stream = None
            raise


class _Stream:
    """One stream, until it ends. It has two threads: gRPC's, which sends, and one that reads."""

    def __init__(self, stub: JobServiceStub) -> None:
        self.ended = False
        self.carries = True
        """Whether a message may be of two calls; an older aggregator hears the first alone."""
        self._requests: SimpleQueue[WorkRequest | None] = SimpleQueue()
        self._answers: SimpleQueue[WorkResponse | grpc.RpcError | ModnormError] = SimpleQueue()
        self._call = stub.Work(iter(self._requests.get, None))
        threading.Thread(target=self._read, name="answers", daemon=True).start()

    def call(self, request: WorkRequest, seconds: float) -> WorkResponse:
        self._requests.put(request)
        try:
            answer = self._answers.get(timeout=seconds)
        except Empty:
            # An answer that comes late is not the next call's.
            self._call.cancel()  # type: ignore[no-untyped-call]  # untyped in its stubs
            raise _unanswered(seconds) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _read(self) -> None:
        end: grpc.RpcError | ModnormError = UnavailableError("the stream was ended")
        try:
            for answer in self._call:
                self._answers.put(answer)
        except (grpc.RpcError, ModnormError) as error:
            end = error
        self.ended = True
        self._answers.put(end)
        self._requests.put(None)


def _unanswered(seconds: float) -> UnavailableError:
    return UnavailableError(f"no answer within {seconds:g} s")


def _was_let_in_before(error: grpc.RpcError) -> bool:
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAUTHENTICATED
