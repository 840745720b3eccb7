"""Ctrl-C and SIGTERM during a command."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from modnorm.cli.console import say

EXIT_CODE = 130
"""The exit code of shells for Ctrl-C."""


@contextmanager
def interruptible(remark: str) -> Iterator[None]:
    """Exit on Ctrl-C with its exit code and a remark on how to resume."""
    try:
        yield
    except KeyboardInterrupt as error:
        say(f"\n{remark}")
        raise typer.Exit(EXIT_CODE) from error


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process when Ctrl-C or SIGTERM has left the context; SIGTERM's exit code is 0.

    Python's own end would take seconds, wait for some threads and run into others.
    """
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    except KeyboardInterrupt:
        _end_process(EXIT_CODE)
    except SystemExit:
        _end_process(0)
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(0)


def _end_process(code: int) -> NoReturn:
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
