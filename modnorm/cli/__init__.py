"""The `modnorm` command.

Torch, transformers and matplotlib are imported inside the commands that need them: the others
answer at once.
"""

from modnorm.cli.app import main

__all__ = ["main"]
