import errno
import os
import select
from pathlib import Path

import pytest

from modnorm.errors import InvalidInputError, UnavailableError
from modnorm.files import check_writable, read_text, replaced_file, write_fault, write_file


def write_and_fail(draft):
    draft.write(b"new")
    raise RuntimeError


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text("old")
    with pytest.raises(RuntimeError), replaced_file(path) as draft:
        write_and_fail(draft)
    assert path.read_text() == "old"
    with replaced_file(path) as draft:
        draft.write(b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_a_write_names_the_file(tmp_path):
    path = tmp_path / "answers.jsonl"
    with pytest.raises(OSError, match="No space left on device") as caught, replaced_file(path):
        os.write(os.open("/dev/full", os.O_WRONLY), b"new")
    assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_a_special_file_is_written_in_place(tmp_path):
    device = tmp_path / "device"
    device.symlink_to("/dev/null")
    write_file(device, b"new")
    assert device.readlink() == Path("/dev/null")
    assert list(tmp_path.iterdir()) == [device]


def test_the_target_of_a_link_is_replaced(tmp_path):
    link, folder = tmp_path / "link", tmp_path / "folder"
    folder.mkdir()
    link.symlink_to(folder / "file")
    for content in (b"old", b"new"):
        write_file(link, content)
        assert link.readlink() == folder / "file"
        assert (folder / "file").read_bytes() == content
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_a_text_is_read_up_to_its_bound(tmp_path):
    path = tmp_path / "text"
    path.write_text("abc\u00e9")
    assert read_text(path, most=5) == "abc\u00e9"
    with pytest.raises(ValueError, match="more than 4 bytes"):
        read_text(path, most=4)


def test_a_file_that_may_not_end_is_not_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(ValueError, match="not a regular file"):
            read_text(path, most=10)
    with pytest.raises(ValueError, match="is a directory, not a file"):
        read_text(tmp_path, most=10)
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "absent", most=10)


def test_a_check_removes_no_link_that_leads_to_a_new_file(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    check_writable(link)
    assert (link.is_symlink(), link.exists()) == (True, False)


def test_a_check_does_not_end_the_input_of_a_pipes_reader(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(pipe)
    assert select.select([reader], [], [], 0)[0] == []
    os.close(reader)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOTDIR, errno.EEXIST])
def test_a_path_that_cannot_be_written_is_the_callers_fault(code):
    fault = write_fault(Path("out"), OSError(code, os.strerror(code), "out"))
    assert isinstance(fault, InvalidInputError)
    assert str(fault).startswith(f"out: cannot write out: {os.strerror(code)} (name another path")


@pytest.mark.parametrize("name", [b"out", 3])
def test_an_error_may_name_bytes_or_a_descriptor(name):
    fault = write_fault(Path("out"), OSError(errno.EACCES, "no", name))
    assert fault.message == f"cannot write out: {name}: no"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_that_cannot_write_is_not_the_callers_fault(code):
    assert isinstance(write_fault(Path("out"), OSError(code, os.strerror(code))), UnavailableError)
