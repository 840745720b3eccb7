import asyncio
import hashlib
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError, NotFoundError, PreconditionError, UnavailableError
from modnorm.services.common import student_servicer, students
from modnorm.services.common.channels import open_service_channel
from modnorm.services.common.student_servicer import SERVICE, ModelServicer
from modnorm.services.common.student_transfer import (
    CHUNK_BYTES,
    fetch_student,
    push_student,
    send_student,
)
from modnorm.services.common.students import StudentFile, Students, list_files
from modnorm.v1 import models_pb2, models_pb2_grpc
from tests.services.loopback import in_thread
from verification.labs.waiting import HANG_SECONDS


@pytest.fixture
def trained(tmp_path):
    """Return a checkpoint with an adapter beside it."""
    directory = tmp_path / "trained"
    shutil.copytree(resolve_checkpoint("tiny-thicket").directory, directory)
    (directory / "adapter").mkdir()
    (directory / "adapter" / "adapter_config.json").write_text("{}")
    return directory


@pytest.fixture
def digest(trained):
    return resolve_checkpoint(str(trained)).digest


@pytest.fixture
def served(tmp_path):
    return Students(tmp_path / "served")


@pytest.fixture
def target(served):
    """Return the address of a server in another thread."""

    def register(server):
        models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(served), server)
        return [SERVICE]

    with in_thread(register) as address:
        yield address


@pytest.fixture
def stub(target):
    with grpc.insecure_channel(target) as channel:
        yield models_pb2_grpc.ModelServiceStub(channel)


def test_a_student_travels_to_the_server_and_to_another_host(
    trained, digest, served, stub, tmp_path
):
    send_student(stub, trained, digest)
    send_student(stub, trained, digest)
    assert list_files(served.require(digest)) == list_files(trained)
    elsewhere = Students(tmp_path / "elsewhere")
    fetched = fetch_student(stub, digest, elsewhere)
    assert list_files(fetched) == list_files(trained)
    assert resolve_checkpoint(str(fetched)).digest == digest
    assert fetch_student(stub, digest, elsewhere) == fetched


def test_a_student_is_pushed_to_a_service_that_lacks_it(trained, digest, served, target, tmp_path):
    mine = Students(tmp_path / "mine")
    shutil.copytree(trained, mine.root / digest)

    async def push(wanted):
        async with open_service_channel(target) as channel:
            await push_student(channel, (), mine, wanted)

    asyncio.run(push(digest))
    asyncio.run(push(digest))
    with pytest.raises(NotFoundError):
        asyncio.run(push("0" * 64))
    assert list_files(served.require(digest)) == list_files(trained)


async def test_a_push_leaves_the_event_loop_free(trained, digest, target, tmp_path):
    """Files of a large student take a minute to digest."""
    threads = set()

    class Watched(Students):
        def files(self, digest):
            threads.add(threading.current_thread())
            return super().files(digest)

    mine = Watched(tmp_path / "mine")
    shutil.copytree(trained, mine.root / digest)
    async with open_service_channel(target) as channel:
        await push_student(channel, (), mine, digest)
    assert threads
    assert threading.current_thread() not in threads


@pytest.mark.parametrize("folder", ["", "adapter/"])
def test_a_student_has_a_bounded_number_of_files(served, monkeypatch, folder):
    monkeypatch.setattr(students, "MAX_FILES", 2)
    empty = hashlib.sha256().hexdigest()
    for name in ("a", "b", "b"):
        served.write("a" * 64, StudentFile(f"{folder}{name}", 0, empty), [])
    with pytest.raises(InvalidInputError, match="too many files"):
        served.write("a" * 64, StudentFile(f"{folder}c", 0, empty), [])


def test_a_student_of_another_digest_is_refused(trained, served, stub):
    with pytest.raises(PreconditionError, match="have digest"):
        send_student(stub, trained, "a" * 64)
    assert served.path("a" * 64) is None


async def test_a_slow_upload_leaves_the_default_threads_free(served):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    content, sends = b"content", asyncio.Event()
    file = models_pb2.ModelFile(
        name="config.json", size=len(content), sha256=hashlib.sha256(content).hexdigest()
    )

    async def parts():
        header = models_pb2.UploadHeader(model_digest="a" * 64, file=file)
        yield models_pb2.UploadModelFileRequest(header=header)
        await sends.wait()
        yield models_pb2.UploadModelFileRequest(chunk=content)

    servicer = ModelServicer(served)
    upload = asyncio.create_task(servicer.UploadModelFile(parts(), None))
    await asyncio.sleep(0)
    call = asyncio.create_task(asyncio.to_thread(threading.get_ident))
    done, _ = await asyncio.wait([call], timeout=5)
    sends.set()
    await asyncio.gather(upload, call)
    servicer.close()
    assert done
    assert (served.root / "uploads" / ("a" * 64) / "config.json").read_bytes() == content


def test_stalled_uploads_end_and_make_room_for_others(trained, digest, served, stub, monkeypatch):
    monkeypatch.setattr(student_servicer, "IDLE_SECONDS", 0.5)
    file = models_pb2.ModelFile(name="config.json", size=10, sha256="0" * 64)
    header = models_pb2.UploadHeader(model_digest="a" * 64, file=file)
    beginnings = [[], [models_pb2.UploadModelFileRequest(header=header)]] * 9
    ended = threading.Event()

    def stalled(beginning):
        yield from beginning
        ended.wait()

    calls = [
        stub.UploadModelFile.future(stalled(each), timeout=HANG_SECONDS) for each in beginnings
    ]
    send_student(stub, trained, digest)
    refusals = [call.exception() for call in calls]
    ended.set()
    assert served.path(digest) is not None
    assert {each.code() for each in refusals} == {grpc.StatusCode.UNAVAILABLE}
    assert {each.details() for each in refusals} == {"the upload stalled for 0.5 s"}
    assert not list((served.root / "drafts" / ("a" * 64)).iterdir())


def test_an_interrupted_upload_leaves_no_file(trained, digest, served, stub):
    file = models_pb2.ModelFile(name="config.json", size=10, sha256="0" * 64)
    header = models_pb2.UploadHeader(model_digest=digest, file=file)
    parts = [
        models_pb2.UploadModelFileRequest(header=header),
        models_pb2.UploadModelFileRequest(chunk=b"short"),
    ]

    with pytest.raises(grpc.RpcError) as refused:
        stub.UploadModelFile(iter(parts))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not list((served.root / "uploads" / digest).iterdir())
    with pytest.raises(PreconditionError, match="not complete"):
        served.complete(digest)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/b/c", ".hidden", "adapter/../x", ""])
def test_a_file_outside_of_the_student_is_refused(served, name):
    with pytest.raises(InvalidInputError, match="cannot have a file"):
        served.write("a" * 64, StudentFile(name, 0, ""), [])


@pytest.mark.parametrize("digest", ["", "../../etc", "A" * 64])
def test_a_malformed_digest_is_refused(served, digest):
    with pytest.raises(InvalidInputError, match="not a digest"):
        served.path(digest)


def test_a_chunk_over_the_limit_is_refused(digest, served, stub):
    file = models_pb2.ModelFile(name="config.json", size=2 * CHUNK_BYTES, sha256="0" * 64)
    header = models_pb2.UploadHeader(model_digest=digest, file=file)
    large = models_pb2.UploadModelFileRequest(chunk=bytes(CHUNK_BYTES + 1))

    with pytest.raises(grpc.RpcError) as refused:
        stub.UploadModelFile(iter([models_pb2.UploadModelFileRequest(header=header), large]))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_files_that_decide_no_answer_may_have_any_name(trained, digest, stub, tmp_path):
    """A student has the other files of its base, for instance those of a git repository."""
    (trained / ".gitattributes").write_text("*.safetensors filter=lfs")
    (trained / "Terms of use.md").write_text("be kind")
    (trained / ".cache" / "huggingface").mkdir(parents=True)
    (trained / ".cache" / "huggingface" / "tokenizer.json.lock").touch()
    send_student(stub, trained, digest)
    fetched = fetch_student(stub, digest, Students(tmp_path / "elsewhere"))
    assert resolve_checkpoint(str(fetched)).digest == digest
    assert not (fetched / ".gitattributes").exists()


def test_a_file_that_a_killed_process_left_is_no_file_of_the_student(trained, digest, served):
    """A process killed in the middle of an upload leaves its draft."""
    first, *others = list_files(trained)

    def killed():
        yield b""
        raise SystemExit  # no handler of a killed process runs, so the draft is put back

    with pytest.raises(SystemExit):
        served.write(digest, first, killed())
    (served.root / "drafts" / digest / "draft").write_bytes(b"half")
    for file in (first, *others):
        served.write(digest, file, [(trained / file.name).read_bytes()])
    served.complete(digest)
    assert served.files(digest) == list_files(trained)
    assert not list((served.root / "drafts").iterdir())


def test_an_upload_that_nobody_continues_is_removed(trained, digest, served):
    for name in (digest, "0" * 64):
        for file in list_files(trained)[:2]:
            served.write(name, file, [(trained / file.name).read_bytes()])
        (served.root / "drafts" / name / "draft").write_bytes(b"half")
    long_ago = time.time() - students.ABANDONED_SECONDS - 60
    for folder in ("uploads", "drafts"):
        os.utime(served.root / folder / ("0" * 64), (long_ago, long_ago))
    served.clean_up()
    for folder in ("uploads", "drafts"):
        assert [each.name for each in (served.root / folder).iterdir()] == [digest]
    for file in list_files(trained):
        served.write(digest, file, [(trained / file.name).read_bytes()])
    served.complete(digest)
    os.utime(served.root / digest, (long_ago, long_ago))
    served.clean_up()
    assert served.files(digest) == list_files(trained)


def test_a_slow_second_upload_leaves_nothing_in_a_complete_student(trained, digest, served):
    """Two trainers may send the same student: the lease of the first has expired."""
    files = list_files(trained)
    contents = {file.name: (trained / file.name).read_bytes() for file in files}

    def slow():
        yield contents[files[0].name][:1]
        for file in files:
            served.write(digest, file, [contents[file.name]])
        served.complete(digest)
        yield contents[files[0].name][1:]

    with pytest.raises(UnavailableError):
        served.write(digest, files[0], slow())
    served.write(digest, files[0], [contents[files[0].name]])
    assert served.files(digest) == files


@pytest.fixture
def complete_at(trained, digest, served, monkeypatch):
    """Upload a student; another trainer completes it once a function of the module is called."""
    for file in list_files(trained):
        served.write(digest, file, [(trained / file.name).read_bytes()])

    def arm(name):
        original = getattr(students, name)

        def call(place):
            monkeypatch.setattr(students, name, original)
            served.complete(digest)
            return original(place)

        monkeypatch.setattr(students, name, call)

    return arm


def test_a_student_that_another_trainer_completes_during_the_check_is_complete(
    digest, served, complete_at
):
    complete_at("resolve_checkpoint")
    assert served.complete(digest) == served.require(digest)


def test_a_file_sent_while_another_trainer_completes_the_student_can_be_sent_again(
    trained, digest, served, complete_at
):
    file = list_files(trained)[0]
    complete_at("file_digest")
    with pytest.raises(UnavailableError):
        served.write(digest, file, [])
    served.write(digest, file, [])


@pytest.mark.parametrize("offset", [-1, 2**40, 2**63 - 1])
def test_an_offset_outside_the_file_is_refused(trained, digest, stub, offset):
    send_student(stub, trained, digest)
    request = models_pb2.DownloadModelFileRequest(
        model_digest=digest, name="config.json", offset=offset
    )
    with pytest.raises(grpc.RpcError) as refused:
        list(stub.DownloadModelFile(request))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    whole = models_pb2.DownloadModelFileRequest(model_digest=digest, name="config.json", offset=3)
    chunks = b"".join(part.chunk for part in stub.DownloadModelFile(whole))
    assert chunks == (trained / "config.json").read_bytes()[3:]
