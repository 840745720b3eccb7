"""The output of this process and its children, sent to a file apart from the command's own.

Libraries, their worker processes and native code write to the standard descriptors whenever they
like. Only a change of the descriptors themselves catches them all.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

LAB_LOG = "lab.log"
"""Name of the log of an embedded lab, in its state directory."""

_kept: dict[str, TextIO] = {}
"""The command's own streams while the descriptors lead to a file."""


def own_stream(name: str) -> TextIO:
    """Return the stream of the command itself, `stdout` or `stderr`."""
    stream: TextIO = _kept.get(name) or getattr(sys, name)
    return stream


@contextmanager
def output_to(file: Path) -> Iterator[None]:
    """Append all output but that of `own_stream` to a file, inside the context."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        stack.callback(os.close, target)
        for number, name in ((1, "stdout"), (2, "stderr")):
            if getattr(sys, name) is None:
                continue
            copy = os.dup(number)
            stack.callback(os.close, copy)
            stack.callback(_lead, number, name, copy)
            stack.callback(_kept.pop, name)
            _kept[name] = _own(number, name, copy)
            stack.callback(_kept[name].flush)
            _lead(number, name, target)
        yield


def _own(number: int, name: str, copy: int) -> TextIO:
    """Return a stream to the descriptor's copy, or the stream that replaces the standard one."""
    stream: TextIO = getattr(sys, name)
    try:
        is_standard = stream.fileno() == number
    except OSError:  # a buffer in memory
        is_standard = False
    if not is_standard:
        return stream
    return open(
        copy, "w", encoding=stream.encoding, errors=stream.errors, buffering=1, closefd=False
    )


def _lead(number: int, name: str, target: int) -> None:
    """Let a standard descriptor lead to another's file."""
    getattr(sys, name).flush()
    os.dup2(target, number)
