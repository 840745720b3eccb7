"""What Ctrl-C does to a command."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from modnorm.cli.console import stderr

EXIT_CODE = 130
"""As shells have it."""


@contextmanager
def interruptible(remark: str) -> Iterator[None]:
    """End with the exit code of Ctrl-C and a remark on how to go on."""
    try:
        yield
    except KeyboardInterrupt as error:
        stderr().print(f"\n{remark}", soft_wrap=True)
        raise typer.Exit(EXIT_CODE) from error
