"""ModelService: uploads and downloads of students."""

import asyncio
import queue
from collections.abc import AsyncIterable, AsyncIterator, Iterator

from typing_extensions import override

from modnorm.errors import InvalidInputError, NotFoundError, UnavailableError
from modnorm.services.common.slow_threads import SlowThreads
from modnorm.services.common.student_transfer import CHUNK_BYTES, read_chunks
from modnorm.services.common.students import StudentFile, Students
from modnorm.v1 import models_pb2, models_pb2_grpc

SERVICE = "modnorm.v1.ModelService"
_AHEAD = 4
"""Chunks of an upload in memory."""
IDLE_SECONDS = 60.0
"""Seconds without a message after which an upload ends. The trainer sends it again."""
_UPLOADS = 8
"""Files written concurrently; each holds a thread for as long as its client sends."""


class ModelServicer(models_pb2_grpc.ModelServiceServicer):
    """Stores and sends students."""

    def __init__(self, students: Students) -> None:
        self._students = students
        self._uploads = SlowThreads(_UPLOADS, "upload")

    def close(self) -> None:
        """Stop the threads after the last call."""
        self._uploads.close()

    @override
    async def DescribeModel(
        self, request: models_pb2.DescribeModelRequest, context: object
    ) -> models_pb2.DescribeModelResponse:
        """Return the files of a stored student."""
        files = await asyncio.to_thread(self._students.files, request.digest)
        return models_pb2.DescribeModelResponse(
            files=[
                models_pb2.ModelFile(name=one.name, size=one.size, sha256=one.sha256)
                for one in files
            ]
        )

    @override
    async def UploadModelFile(
        self,
        request_iterator: AsyncIterable[models_pb2.UploadModelFileRequest],
        context: object,
    ) -> models_pb2.UploadModelFileResponse:
        """Store one file."""
        parts = _with_idle_limit(request_iterator)
        first = await anext(parts, None)
        if first is None or first.WhichOneof("part") != "header":
            raise InvalidInputError("an upload must begin with its header", field="header")
        message = first.header.file
        file = StudentFile(message.name, message.size, message.sha256)
        chunks: queue.Queue[bytes | None] = queue.Queue(_AHEAD)
        writing = asyncio.create_task(
            self._uploads.run(
                self._students.write, first.header.model_digest, file, _until_none(chunks)
            )
        )
        await _pass_on(parts, chunks, writing)
        return models_pb2.UploadModelFileResponse()

    @override
    async def StoreModel(
        self, request: models_pb2.StoreModelRequest, context: object
    ) -> models_pb2.StoreModelResponse:
        """Complete a student."""
        await asyncio.to_thread(self._students.complete, request.digest)
        return models_pb2.StoreModelResponse()

    @override
    async def DownloadModelFile(
        self, request: models_pb2.DownloadModelFileRequest, context: object
    ) -> AsyncIterator[models_pb2.DownloadModelFileResponse]:
        """Stream one file of a stored student."""
        files = await asyncio.to_thread(self._students.files, request.model_digest)
        sizes = {file.name: file.size for file in files}
        if request.name not in sizes:
            raise NotFoundError(f"the student has no file {request.name[:200]!r}", field="name")
        if not 0 <= request.offset <= sizes[request.name]:
            raise InvalidInputError(
                f"the file has {sizes[request.name]} bytes", field="offset", remedy="lower it"
            )
        directory = self._students.require(request.model_digest)
        chunks = read_chunks(directory / request.name, request.offset)
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            yield models_pb2.DownloadModelFileResponse(chunk=chunk)


async def _with_idle_limit(
    requests: AsyncIterable[models_pb2.UploadModelFileRequest],
) -> AsyncIterator[models_pb2.UploadModelFileRequest]:
    """Yield the messages of an upload.

    Raises:
        UnavailableError: no message came for `IDLE_SECONDS`.
    """
    parts = aiter(requests)
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                part = await anext(parts, None)
        except TimeoutError:
            raise UnavailableError(
                f"the upload stalled for {IDLE_SECONDS:g} s", remedy="send the file again"
            ) from None
        if part is None:
            return
        yield part


async def _pass_on(
    parts: AsyncIterator[models_pb2.UploadModelFileRequest],
    chunks: "queue.Queue[bytes | None]",
    writing: "asyncio.Task[None]",
) -> None:
    """Pass the chunks of an upload to the thread that writes them, and wait for its end.

    An upload that ends early is refused by its size.
    """
    try:
        async for part in parts:
            _check_chunk(part.chunk)
            await _put(chunks, part.chunk, writing)
    except BaseException:
        await _put(chunks, None, writing)
        await asyncio.gather(writing, return_exceptions=True)
        raise
    await _put(chunks, None, writing)
    await writing


def _check_chunk(chunk: bytes) -> None:
    if len(chunk) > CHUNK_BYTES:
        raise InvalidInputError("a chunk has at most 1 MiB", field="chunk")


async def _put(
    chunks: "queue.Queue[bytes | None]", chunk: bytes | None, writing: "asyncio.Task[None]"
) -> None:
    """Queue a chunk; drop it once the writer has ended, whose error the caller raises."""
    while not writing.done():
        try:
            chunks.put_nowait(chunk)
        except queue.Full:
            await asyncio.sleep(0.005)
        else:
            return


def _until_none(chunks: "queue.Queue[bytes | None]") -> Iterator[bytes]:
    while (chunk := chunks.get()) is not None:
        yield chunk
