"""Rate and remaining time of a phase."""

from dataclasses import dataclass


@dataclass
class Pace:
    """Rate of one phase from the first item on that finishes while this process watches.

    The time before that item may be the start of an engine. Items finished earlier (before a
    resumed run, in replayed events) do not count.
    """

    opened: float
    """Time in seconds from which this process watches."""
    started: float = 0.0
    """Time at which counting started."""
    base: int = 0
    """Items finished by then."""
    done: int = 0
    """Items finished by now."""
    at: float = 0.0
    """Time of the last counted item."""

    def count(self, done: int, at: float) -> None:
        """Record `done` items at time `at`."""
        if done == self.done:
            return
        if not self.started or at < self.opened:
            self.base = done
            self.started = at if at >= self.opened else 0.0
        self.done, self.at = done, at

    @property
    def rate(self) -> float | None:
        """Items per second; None before the first."""
        counted, seconds = self.done - self.base, self.at - self.started
        return counted / seconds if counted > 0 and seconds > 0 else None

    def remaining(self, total: int) -> float | None:
        """Return seconds until `total` items are done; None while the rate is unknown."""
        rate = self.rate
        return (total - self.done) / rate if rate else None


def speed(pace: Pace, total: int) -> list[str]:
    """Return rate and remaining time as text; empty while they are unknown."""
    rate, remaining = pace.rate, pace.remaining(total)
    if rate is None or remaining is None:
        return []
    minutes, seconds = divmod(round(remaining), 60)
    eta = [f"ETA {minutes}:{seconds:02}"] if pace.done < total else []
    return [f"{rate:.2f}/s", *eta]
