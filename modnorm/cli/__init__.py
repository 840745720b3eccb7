"""The `modnorm` command.

The module of a command holds its options and its help, and is imported when the command is named.
Heavy imports stand inside the functions, so that help and refusals answer at once.
"""

from modnorm.cli.app import main

__all__ = ["main"]
