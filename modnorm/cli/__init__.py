"""The `modnorm` command.

Each command has a module with its options and help, which is imported when a user names the
command. Heavy imports are inside functions, so that help and refusals appear at once.
"""

from modnorm.cli.app import main

__all__ = ["main"]
