"""The folder of vLLM's sockets goes away with its process, however that ends."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from modnorm.engines.vllm.socket_folder import VARIABLE

OWNER = f"""
import fcntl, os, sys
if "FLOCK_ERROR" in os.environ:
    def flock(*arguments):
        raise OSError(int(os.environ["FLOCK_ERROR"]), "no locks")
    fcntl.flock = flock
from modnorm.engines.vllm.socket_folder import use_socket_folder
use_socket_folder()
use_socket_folder()
print(os.environ.get("{VARIABLE}"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary():
    """A folder with a path short enough for sockets, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="modnorm-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def start(temporary):
    """Start a process that uses a socket folder; return it and the folder."""
    started = []

    def begin(folder=temporary, **variables):
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment | {"TMPDIR": str(folder)} | variables,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def leave(process):
    process.communicate()
    assert process.returncode == 0


def test_a_process_that_exits_leaves_nothing(start, temporary):
    process, folder = start()
    assert [str(path) for path in temporary.iterdir()] == [folder]
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    (Path(folder) / "socket").touch()
    leave(process)
    assert list(temporary.iterdir()) == []


def test_the_next_process_removes_the_folder_of_a_killed_one_only(start, temporary):
    killed, left = start()
    _, used = start()
    killed.kill()
    killed.wait()
    assert {str(path) for path in temporary.iterdir()} == {left, used}
    _, new = start()
    assert {str(path) for path in temporary.iterdir()} == {used, new}


def test_a_folder_that_is_set_already_is_kept(start, temporary):
    process, folder = start(**{VARIABLE: str(temporary)})
    assert folder == str(temporary)
    leave(process)
    assert temporary.is_dir()
