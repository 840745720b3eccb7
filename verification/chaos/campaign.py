"""Schedules run one after the other on a lab, which is replaced after a failure.

At the end a planted bug must be detected: fencing tokens that never grow. A trigger in a lab's
database keeps every token at 1, so that an old lease looks like the present one, whatever the
aggregator checks. The services are unchanged.
"""

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path

from verification.chaos.lab import Lab, open_lab
from verification.chaos.outcome import RunOutcome
from verification.chaos.runs import ScheduleRun, Verdict
from verification.chaos.schedules import EXPERIMENTS, Fault, Schedule, Step
from verification.labs.forked import ForkServer

CHANCES = 5
"""A kind of fault that had no effect in this many injections, and never any, counts as idle."""
_PLANT = """
CREATE FUNCTION keep_token() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.token := LEAST(NEW.token, 1); RETURN NEW; END $$;
CREATE TRIGGER keep_token BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION keep_token();
"""
_REMOVE = "DROP TRIGGER keep_token ON jobs; DROP FUNCTION keep_token"
TRIES = 3
"""Attempts: a late report detects nothing if the other worker was faster."""


def run_undisturbed(lab: Lab, names: Sequence[str] = EXPERIMENTS) -> dict[str, RunOutcome]:
    """Run experiments without faults; return their outcomes by name."""
    outcomes = {}
    for name in names:
        verdict, outcome = ScheduleRun(lab, Schedule(0, name, ())).run(None)
        if outcome is None or verdict.complaints:
            raise RuntimeError(f"{name} fails undisturbed: {verdict.complaints}")
        outcomes[name] = outcome
    return outcomes


def run_schedule(lab: Lab, schedule: Schedule, expected: dict[str, RunOutcome]) -> Verdict:
    """Run a schedule on a lab with a correct clock, and reset the clock afterwards."""
    lab.wait()
    if schedule.cold:
        lab.forget()
    verdict, _ = ScheduleRun(lab, schedule).run(expected[schedule.experiment])
    lab.move_clock(0.0)
    return verdict


class Campaign:
    """Runs schedules and counts their results."""

    def __init__(self, forks: ForkServer, folder: Path) -> None:
        self._forks = forks
        self._folder = folder
        self._injected: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._verdicts: list[Verdict] = []

    @property
    def failed(self) -> list[int]:
        """The seeds of the schedules that failed."""
        return [verdict.schedule.seed for verdict in self._verdicts if verdict.complaints]

    @property
    def idle(self) -> list[str]:
        """The kinds of faults that had no effect in any schedule."""
        return sorted(
            fault
            for fault, times in self._missed.items()
            if times >= CHANCES and not self._injected[fault]
        )

    def run(self, schedules: Iterable[Schedule]) -> None:
        """Run schedules on one lab, or on several after failures."""
        waiting, expected = list(schedules), dict[str, RunOutcome]()
        for number in count(1):
            if not waiting:
                break
            with open_lab(self._forks, self._folder / f"lab-{number}") as lab:
                expected = expected or run_undisturbed(lab)
                while waiting and self._passes(lab, waiting.pop(0), expected):
                    pass

    def summary(self) -> dict[str, object]:
        """Return counts of schedules and faults, and times of recovery."""
        recoveries = [verdict.recovery for verdict in self._verdicts if not verdict.complaints]
        return {
            "schedules": len(self._verdicts),
            "failed_seeds": self.failed,
            "faults": dict(sorted(self._injected.items())),
            "nothing_left_to_break": dict(sorted(self._missed.items())),
            "never_anything_to_break": self.idle,
            "seconds_a_schedule": _extent([one.seconds for one in self._verdicts]),
            "seconds_from_last_fault_to_end": _extent(recoveries),
        }

    def _passes(self, lab: Lab, schedule: Schedule, expected: dict[str, RunOutcome]) -> bool:
        verdict = run_schedule(lab, schedule, expected)
        self._verdicts.append(verdict)
        for injection in verdict.injections:
            counted = self._injected if injection.did else self._missed
            counted[str(injection.step.fault)] += 1
        state = "FAILED" if verdict.complaints else "ok"
        lines = [
            f"{time.strftime('%H:%M:%S')} seed {schedule.seed} {state}: {verdict.seconds:.1f} s",
            f"    {verdict.recovery:.1f} s after the last fault of {schedule}",
            *(f"    - {one.did or f'{one.step.fault}: too late'}" for one in verdict.injections),
            *(f"    ! {complaint}" for complaint in verdict.complaints),
        ]
        print("\n".join(lines), flush=True)
        return not verdict.complaints


def _extent(values: Sequence[float]) -> dict[str, float]:
    found = {"median": statistics.median(values), "worst": max(values)} if values else {}
    return {name: round(value, 1) for name, value in found.items()}


@contextlib.contextmanager
def fencing_removed(lab: Lab) -> Iterator[None]:
    """Plant the bug inside the context."""
    with lab.database.connect() as connection:
        connection.execute(_PLANT)
    try:
        yield
    finally:
        with lab.database.connect() as connection:
            connection.execute(_REMOVE)


def find_planted_bug(forks: ForkServer, folder: Path) -> bool:
    """Remove fencing from a lab and send late reports; return whether the bug is detected."""
    with open_lab(forks, folder, supervised=False) as lab:
        expected = run_undisturbed(lab, EXPERIMENTS[:1])
        for seed in range(TRIES):
            step = Step(Fault.LATE_REPORT, 1, 0.0, seed)
            with fencing_removed(lab):
                verdict = run_schedule(lab, Schedule(seed, EXPERIMENTS[0], (step,)), expected)
            if verdict.complaints:
                print(f"fencing removed: found ({'; '.join(verdict.complaints)[:300]})")
                return True
    print("fencing removed: NOT FOUND")
    return False
