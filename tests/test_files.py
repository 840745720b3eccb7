from pathlib import Path

from modnorm.files import write_file


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    for content in (b"old", b"new"):
        write_file(tmp_path / "file", content)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"new")]


def test_what_is_no_file_stays_what_it_is(tmp_path):
    device = tmp_path / "device"
    device.symlink_to("/dev/null")
    write_file(device, b"new")
    assert device.readlink() == Path("/dev/null")
    assert list(tmp_path.iterdir()) == [device]
