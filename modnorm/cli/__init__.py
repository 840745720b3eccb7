"""The `modnorm` command.

A command's module is imported when the command is named, and holds its options and its help. What
a command needs besides is imported inside it, so that help and refusals answer at once.
"""

from modnorm.cli.app import main

__all__ = ["main"]
