import os
import subprocess
import sys

import pytest

from modnorm.process_output import output_to, own_stream

WRITE = "import sys; print('child out', flush=True); print('child err', file=sys.stderr)"


def run_apart(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )


APART = f"""
import os, pathlib, subprocess, sys
from modnorm.process_output import output_to, own_stream
print("before")
with output_to(pathlib.Path(sys.argv[1])):
    print("library")
    print("library error", file=sys.stderr)
    os.write(2, b"native\\n")
    subprocess.run([sys.executable, "-c", {WRITE!r}], check=True)
    print("progress", file=own_stream("stderr"))
    print("result", file=own_stream("stdout"))
print("after")
print("error", file=sys.stderr)
"""


def test_output_of_libraries_and_children_goes_to_the_file(tmp_path):
    log = tmp_path / "state" / "lab.log"
    for _ in range(2):
        ended = run_apart(APART, log)
        assert ended.stdout.split("\n") == ["before", "result", "after", ""]
        assert ended.stderr.split("\n") == ["progress", "error", ""]
    lines = log.read_text().splitlines()
    assert sorted(lines) == sorted(
        ["library", "library error", "native", "child out", "child err"] * 2
    )


def test_a_replaced_stream_stays_the_commands_own(tmp_path, capsys):
    with output_to(tmp_path / "log"):
        assert own_stream("stdout") is sys.stdout
        print("result", file=own_stream("stdout"))
        os.write(1, b"native\n")
    assert capsys.readouterr().out == "result\n"
    assert (tmp_path / "log").read_text() == "native\n"


def test_the_streams_are_back_after_an_error(tmp_path):
    def fail():
        with output_to(tmp_path / "log"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert own_stream("stdout") is sys.stdout
    os.write(2, b"")
    assert not (tmp_path / "log").read_bytes()
