"""An object in front of another one."""

from typing import Any


class Delegating:
    """Has the attributes of another object, but for those that a subclass changes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
