"""What reaches the terminal: tables of any width, texts of other people."""

import io
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from modnorm.cli.console import INTERRUPTED, TERMINATED, table
from verification.labs.waiting import HANG_SECONDS

HEADINGS = ("run", "points", "95 % interval", "only modular_norm", "only randopt")
WORK_THAT_DOES_NOT_END = """
import signal, sys, time
from concurrent.futures import ThreadPoolExecutor
from modnorm.cli import console
# A shell's background jobs ignore SIGINT, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
console._QUIET_SECONDS, console._STOP_SECONDS = map(float, sys.argv[1:])
with console.interruptible("resumes"), ThreadPoolExecutor(1) as threads:
    threads.submit(time.sleep, 600)
    try:
        print("works", flush=True)
        time.sleep(600)
    finally:
        print("stops", flush=True)
"""
ROWS = [
    ("N=10 K=1", "-5.0", "[-15.0, 5.0]", "11", "16"),
    ("N=20 K=10", "-1.0", "[-9.0, 6.0]", "7", "8"),
]


def printed(shown, width):
    output = io.StringIO()
    Console(file=output, width=width, markup=False, highlight=False).print(shown)
    return [line.rstrip() for line in output.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 40, 60, 64])
def test_a_narrow_terminal_cuts_no_figure(width):
    assert len(printed(table(HEADINGS, ROWS), 80)) == 3
    lines = printed(table(HEADINGS, ROWS), width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    letters = sorted("".join("".join(lines).split()))
    assert letters == sorted("".join("".join(map("".join, (HEADINGS, *ROWS))).split()))


def test_a_text_cannot_move_the_cursor():
    lines = printed(table(("row", "vote"), [("1", "a\x1b[2Jb")], {"vote"}), 50)
    assert "\x1b" not in "".join(lines)
    assert r"\x1b" in lines[1]


def interrupted(number, quiet, limit, *, again):
    """Send a process that does not stop a signal, or two; return exit code and stderr."""
    command = [sys.executable, "-c", WORK_THAT_DOES_NOT_END, *map(str, (quiet, limit))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "works\n"
            process.send_signal(number)
            assert process.stdout.readline() == "stops\n"
            if again:
                time.sleep(0.6)  # a signal before that is the first, repeated
                process.send_signal(number)
            _, err = process.communicate(timeout=HANG_SECONDS)
        finally:
            process.kill()
    return process.returncode, err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)]
)
def test_a_second_signal_ends_work_that_does_not_stop(number, code):
    assert interrupted(number, 60, 90, again=True) == (code, "\nresumes\n")


def test_work_that_does_not_stop_is_ended():
    code, err = interrupted(signal.SIGTERM, 0.1, 1, again=False)
    assert code == TERMINATED
    assert err == "stopping within 1 s; another Ctrl-C or SIGTERM ends at once\n\nresumes\n"
