"""How fast a phase goes and how long it still takes."""

from dataclasses import dataclass


@dataclass
class Pace:
    """Rate of one phase, counted from where this process began to look.

    What was finished before (a run that continues, events told again) took other time.
    """

    started: float
    """Time in seconds at which the counting began."""
    base: int = 0
    """Items done by then."""
    done: int = 0
    """Items done by now."""
    at: float = 0.0
    """Time of the last item counted."""

    def count(self, done: int, at: float) -> None:
        """Take note of `done` items at time `at`; what lies before the start is not counted."""
        if at < self.started:
            self.base = done
        if done != self.done:
            self.done, self.at = done, at

    @property
    def rate(self) -> float | None:
        """Items a second; None before the first."""
        counted, seconds = self.done - self.base, self.at - self.started
        return counted / seconds if counted > 0 and seconds > 0 else None

    def remaining(self, total: int) -> float | None:
        """Return seconds until `total` items are done; None while the rate is unknown."""
        rate = self.rate
        return (total - self.done) / rate if rate else None


def speed(pace: Pace, total: int) -> list[str]:
    """Return rate and remaining time as people read them; nothing while they are unknown."""
    rate, remaining = pace.rate, pace.remaining(total)
    if rate is None or remaining is None:
        return []
    minutes, seconds = divmod(round(remaining), 60)
    eta = [f"ETA {minutes}:{seconds:02}"] if pace.done < total else []
    return [f"{rate:.2f}/s", *eta]
