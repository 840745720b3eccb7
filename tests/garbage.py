"""A plugin that exempts modules and collected tests from garbage collection, and collects less.

They are over a million objects, and a full collection of them takes a second. With Python's own
thresholds a tenth of the tests' processor time was garbage collection.
"""

import gc
from collections.abc import Generator
from importlib.util import find_spec

import pytest

THRESHOLDS = (5_000, 10, 10)
"""Seven times as many new objects before a collection as by default."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection, then exempt all objects from it."""
    gc.disable()
    try:
        found = yield
    finally:
        gc.enable()
    if find_spec("hypothesis"):
        # Hypothesis registers random generators at its first use, and finds none that are frozen.
        import numpy as np  # noqa: F401, PLC0415 - it has one
        from hypothesis import find, strategies  # noqa: PLC0415 - absent where vLLM is tested

        find(strategies.none(), lambda _: True)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    return found
