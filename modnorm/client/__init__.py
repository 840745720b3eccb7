"""The SDK: the part of the library that calls a lab.

Its names are imported on first use: settings and run directories need no gRPC.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modnorm.client.async_client import AsyncClient
    from modnorm.client.async_run import AsyncRun
    from modnorm.client.client import Client
    from modnorm.client.experiments import (
        DistillationRound,
        Event,
        Experiment,
        ExperimentState,
        ExperimentSummary,
        Progress,
    )

__all__ = [
    "AsyncClient",
    "AsyncRun",
    "Client",
    "DistillationRound",
    "Event",
    "Experiment",
    "ExperimentState",
    "ExperimentSummary",
    "Progress",
]

_MODULES = {
    "async_client": ("AsyncClient",),
    "async_run": ("AsyncRun",),
    "client": ("Client",),
    "experiments": (
        "DistillationRound",
        "Event",
        "Experiment",
        "ExperimentState",
        "ExperimentSummary",
        "Progress",
    ),
}
_PLACES = {
    name: f"{__name__}.{module}:{name}" for module, names in _MODULES.items() for name in names
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(_PLACES[name])
