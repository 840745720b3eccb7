"""Transfers of students between services, by ModelService."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc.aio

from modnorm.errors import InvalidInputError, NotFoundError, UnavailableError
from modnorm.locks import locked
from modnorm.services.common.students import StudentFile, Students, list_files
from modnorm.v1 import models_pb2
from modnorm.v1.models_pb2_grpc import ModelServiceStub
from modnorm.wire.connection import Metadata
from modnorm.wire.status import from_rpc_error

CHUNK_BYTES = 2**20
DESCRIBE_SECONDS = 900.0
"""Deadline of a description: the first after a start reads all files of a student."""
FILE_SECONDS = 3_600.0
"""Deadline of the transfer of one file, and of the check of a whole student."""


def fetch_student(stub: ModelServiceStub, digest: str, students: Students) -> Path:
    """Return the directory of a student, which is downloaded unless this host has it.

    Raises:
        UnavailableError: the server is down, lacks the student, or sent wrong bytes.
    """
    present = students.path(digest)
    if present is not None:
        return present
    with locked(students.lock_file(digest)):
        return students.path(digest) or _download(stub, digest, students)


def send_student(stub: ModelServiceStub, directory: Path, digest: str) -> None:
    """Upload the files of a checkpoint's directory and complete the student.

    Files that the server has are sent again only if their content differs.

    Raises:
        PreconditionError: the files have another digest.
        UnavailableError: the server is down; the same call resumes.
    """
    with _errors():
        if _is_stored(stub, digest):
            return
        for file in list_files(directory):
            parts = _upload(digest, file, directory / file.name)
            stub.UploadModelFile(parts, timeout=FILE_SECONDS)
        request = models_pb2.StoreModelRequest(digest=digest)
        stub.StoreModel(request, timeout=FILE_SECONDS)


async def push_student(
    channel: grpc.aio.Channel, metadata: Metadata, students: Students, digest: str
) -> None:
    """Send a student of this host to a service that lacks it.

    Raises:
        NotFoundError: this host lacks the student.
        UnavailableError: the service is down; the same call resumes.
    """
    stub = ModelServiceStub(channel)
    with _errors():
        try:
            request = models_pb2.DescribeModelRequest(digest=digest)
            await stub.DescribeModel(request, timeout=DESCRIBE_SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            if not isinstance(from_rpc_error(error), NotFoundError):
                raise
        else:
            return
        directory = students.require(digest)
        for file in await asyncio.to_thread(students.files, digest):
            parts = _upload_async(digest, file, directory / file.name)
            await stub.UploadModelFile(parts, timeout=FILE_SECONDS, metadata=metadata)
        stored = models_pb2.StoreModelRequest(digest=digest)
        await stub.StoreModel(stored, timeout=FILE_SECONDS, metadata=metadata)


def read_chunks(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Yield the bytes of a file from an offset, in chunks."""
    with path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _download(stub: ModelServiceStub, digest: str, students: Students) -> Path:
    try:
        with _errors():
            described = models_pb2.DescribeModelRequest(digest=digest)
            for file in stub.DescribeModel(described, timeout=DESCRIBE_SECONDS).files:
                request = models_pb2.DownloadModelFileRequest(model_digest=digest, name=file.name)
                parts = stub.DownloadModelFile(request, timeout=FILE_SECONDS)
                expected = StudentFile(file.name, file.size, file.sha256)
                students.write(digest, expected, (part.chunk for part in parts))
        return students.complete(digest)
    except (InvalidInputError, NotFoundError) as error:
        # The files of a student never change, so the same download may succeed later.
        raise UnavailableError(f"student {digest[:12]} was not received: {error}") from error


def _is_stored(stub: ModelServiceStub, digest: str) -> bool:
    try:
        request = models_pb2.DescribeModelRequest(digest=digest)
        stub.DescribeModel(request, timeout=DESCRIBE_SECONDS)
    except grpc.RpcError as error:
        if isinstance(from_rpc_error(error), NotFoundError):
            return False
        raise
    return True


def _upload(
    digest: str, file: StudentFile, path: Path
) -> Iterator[models_pb2.UploadModelFileRequest]:
    message = models_pb2.ModelFile(name=file.name, size=file.size, sha256=file.sha256)
    header = models_pb2.UploadHeader(model_digest=digest, file=message)
    yield models_pb2.UploadModelFileRequest(header=header)
    for chunk in read_chunks(path):
        yield models_pb2.UploadModelFileRequest(chunk=chunk)


async def _upload_async(
    digest: str, file: StudentFile, path: Path
) -> AsyncIterator[models_pb2.UploadModelFileRequest]:
    parts = _upload(digest, file, path)
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        yield part


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
