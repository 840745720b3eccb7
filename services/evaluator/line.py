"""A worker's stream to the aggregator, opened when it is needed and again when it broke."""

import threading
from queue import Empty, SimpleQueue

import grpc

from modnorm.errors import ModnormError, UnavailableError
from modnorm.v1.evaluation_pb2 import WorkRequest, WorkResponse
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub


class Line:
    """One call after the other, from any thread; each waits for the answers before its own.

    Args:
        stub: A synchronous stub.
    """

    def __init__(self, stub: JobServiceStub) -> None:
        self._stub = stub
        self._lock = threading.Lock()
        self._stream: _Stream | None = None

    def call(self, request: WorkRequest, seconds: float) -> WorkResponse:
        """Return the answer to a call.

        Args:
            request: The call.
            seconds: How long the answer may take.

        Raises:
            grpc.RpcError: the stream cannot be opened, or broke; the call may have been heard.
            UnavailableError: no answer came in time.
            InvalidInputError: the file of the token cannot be read.
        """
        with self._lock:
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
            raise UnavailableError(f"no answer within {seconds:g} s") from None
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


def _was_let_in_before(error: grpc.RpcError) -> bool:
    return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAUTHENTICATED
