"""The SDK: the part of the library that calls a lab.

Its names are imported on first use: settings and run directories need no gRPC.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modnorm.client.calls import LabCalls
    from modnorm.client.watch import TERMINAL_STATES

__all__ = ["TERMINAL_STATES", "LabCalls"]

_PLACES = {
    "LabCalls": "modnorm.client.calls:LabCalls",
    "TERMINAL_STATES": "modnorm.client.watch:TERMINAL_STATES",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(_PLACES[name])
