"""Ctrl-C during a command."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from modnorm.cli.console import stderr

EXIT_CODE = 130
"""The exit code of shells for Ctrl-C."""


@contextmanager
def interruptible(remark: str) -> Iterator[None]:
    """Exit on Ctrl-C with its exit code and a remark on how to resume."""
    try:
        yield
    except KeyboardInterrupt as error:
        stderr().print(f"\n{remark}", soft_wrap=True)
        raise typer.Exit(EXIT_CODE) from error
