"""A dictionary of limited size, for caches."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class BoundedDict(OrderedDict[KeyT, ValueT]):
    """A dictionary that drops the item stored longest ago when it has too many.

    An item that is stored at each use stays as long as it is used.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._lock = Lock()

    def find(self, key: KeyT, load: Callable[[], ValueT]) -> ValueT:
        """Return the value of a key; two threads may load it concurrently, if it is absent."""
        with self._lock:
            cached = self.get(key)
        value = load() if cached is None else cached
        with self._lock:
            self[key] = value
        return value

    def __setitem__(self, key: KeyT, value: ValueT) -> None:
        """Store a value as the newest one."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._size:
            self.popitem(last=False)
