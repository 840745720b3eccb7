"""Detection of workers whose replay differs from that of others with the same environment."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from modnorm.analysis.environments import CANARY, like_of
from modnorm.services.common.bounded_dict import BoundedDict

MAX_KEPT = 1_000
"""Most workers whose replay is stored."""

Key = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Replay:
    like: Key
    """Environment and request, which determine the answers."""
    canary: str
    time: float


class Canaries:
    """The last replay of each worker; used in one event loop."""

    def __init__(self, lately: float) -> None:
        self._lately = lately
        self._replays: BoundedDict[str, _Replay] = BoundedDict(MAX_KEPT)

    def note(self, worker: str, environment: Mapping[str, str]) -> bool:
        """Store the environment of a report; return whether it is new."""
        canary = environment.get(CANARY)
        if canary is None:
            return False
        known = self._replays.get(worker)
        like = like_of(environment)
        self._replays[worker] = _Replay(like, canary, time.time())
        return known is None or (known.like, known.canary) != (like, canary)

    def deviations(self) -> Mapping[str, str]:
        """Return warnings by worker: for the minority, or for both of two that differ."""
        since = time.time() - self._lately
        alike: dict[Key, dict[str, str]] = {}
        for worker, replay in self._replays.items():
            if replay.time >= since:
                alike.setdefault(replay.like, {})[worker] = replay.canary
        return {
            worker: text for canaries in alike.values() for worker, text in _odd(canaries).items()
        }


def _odd(canaries: Mapping[str, str]) -> Mapping[str, str]:
    """Return warnings for the workers of one environment that differ from the majority."""
    (most, count), *others = Counter(canaries.values()).most_common()
    usual = None if others and others[0][1] == count else most
    told = f"its base answers otherwise than that of others of its environment ({len(canaries)})"
    return {worker: told for worker, canary in canaries.items() if canary != usual}
