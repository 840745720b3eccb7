"""Gradient-free post-training of language models by modular-norm weight perturbation.

The names of `__all__` are imported on first use, so that `import modnorm` loads nothing else.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modnorm.analysis.run import Run, load_run
    from modnorm.client.client import Client
    from modnorm.prediction.predictor import predict

__all__ = ["Client", "Run", "load_run", "predict"]
__version__ = "0.1.0"

_PLACES = {
    "Client": "modnorm.client.client:Client",
    "Run": "modnorm.analysis.run:Run",
    "load_run": "modnorm.analysis.run:load_run",
    "predict": "modnorm.prediction.predictor:predict",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(_PLACES[name])
