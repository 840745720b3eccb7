"""A worker's stream to the aggregator, opened on demand and reopened after a failure."""

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue

import grpc

from modnorm.errors import ModnormError, UnavailableError
from modnorm.v1.evaluation_pb2 import Call, Reply, WorkRequest, WorkResponse
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub


class WorkStream:
    """Sends messages from any thread; each waits for the response to the one before."""

    def __init__(self, stub: JobServiceStub) -> None:
        self._stub = stub
        self._lock = threading.Lock()
        self._open: _OpenStream | None = None

    def call(self, calls: Sequence[Call], seconds: float) -> Sequence[Reply]:
        """Return the replies to the calls of one message, in order.

        Raises:
            grpc.RpcError: the stream cannot be opened or broke; the calls may have taken effect.
            UnavailableError: no response came in time.
            InvalidInputError: the token file cannot be read.
        """
        request = WorkRequest(calls=calls)
        if not self._lock.acquire(timeout=seconds):
            raise _unanswered(seconds)
        reused = self._open is not None and not self._open.ended
        try:
            return self._send(request, seconds)
        except grpc.RpcError as error:
            if not reused or not _is_unauthenticated(error):
                raise
            # The stream's token expired. Its file may hold a newer one.
            return self._send(request, seconds)
        finally:
            self._lock.release()

    def _send(self, request: WorkRequest, seconds: float) -> Sequence[Reply]:
        stream = self._open
        if stream is None or stream.ended:
            stream = self._open = _OpenStream(self._stub)
        try:
            return stream.send(request, seconds).replies
        except (grpc.RpcError, ModnormError):
            self._open = None
            raise


class _OpenStream:
    """One stream until its end. A thread of gRPC sends, another thread reads."""

    def __init__(self, stub: JobServiceStub) -> None:
        self.ended = False
        self._requests: SimpleQueue[WorkRequest | None] = SimpleQueue()
        self._responses: SimpleQueue[WorkResponse | grpc.RpcError | ModnormError] = SimpleQueue()
        self._call = stub.Work(iter(self._requests.get, None))
        threading.Thread(target=self._read, name="responses", daemon=True).start()

    def send(self, request: WorkRequest, seconds: float) -> WorkResponse:
        self._requests.put(request)
        try:
            response = self._responses.get(timeout=seconds)
        except Empty:
            # A late response would be mistaken for the response to the next message.
            self._call.cancel()  # type: ignore[no-untyped-call]  # untyped in its stubs
            raise _unanswered(seconds) from None
        if isinstance(response, Exception):
            raise response
        return response

    def _read(self) -> None:
        end: grpc.RpcError | ModnormError = UnavailableError("the stream ended")
        try:
            for response in self._call:
                self._responses.put(response)
        except (grpc.RpcError, ModnormError) as error:
            end = error
        self.ended = True
        self._responses.put(end)
        self._requests.put(None)


def _unanswered(seconds: float) -> UnavailableError:
    return UnavailableError(f"no answer within {seconds:g} s")


def _is_unauthenticated(error: grpc.RpcError) -> bool:
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAUTHENTICATED
