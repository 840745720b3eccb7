"""The SDK and the `modnorm` command: the one part of the package that speaks gRPC."""

from modnorm.client.client import ModnormClient
from modnorm.client.watch import TERMINAL_STATES

__all__ = ["TERMINAL_STATES", "ModnormClient"]
