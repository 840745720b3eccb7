"""An object in front of another one, such as an engine of a lab."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from modnorm.engines import Engine


class Delegating:
    """Has the attributes of another object, but for those that a subclass changes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@contextmanager
def engines_from(load: Callable[..., Engine]) -> Iterator[None]:
    """Let a function load the engines of the workers in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODNORM_DEVICES", "")
        patch.setattr("modnorm.services.evaluator.model_cache.load_engine", load)
        yield
