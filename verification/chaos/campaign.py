"""Schedules run one after the other on a lab, which is replaced after a failure."""

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from verification.chaos.chaos_lab import Lab, open_lab
from verification.chaos.fault_schedule import (
    DRAFTS,
    EXPERIMENTS,
    PREDICTIONS,
    SEARCH_FAULTS,
    Fault,
    Schedule,
    draw,
    draw_drafts,
    draw_prediction,
)
from verification.chaos.prediction_run import PredictionRun
from verification.chaos.run_outcome import RunOutcome
from verification.chaos.schedule_run import ScheduleRun, Verdict
from verification.chaos.serving import run_served
from verification.chaos.small_experiments import JOBS, PREDICTION_JOBS
from verification.labs.forked import ForkServer

KINDS = ("schedules", "predictions", "drafts", "served")
"""The kinds of schedules, as the options of the command name them."""
CHANCES = 5
"""A kind of fault that had no effect in this many injections, and never any, counts as idle."""


def run_undisturbed(lab: Lab, names: Sequence[str] = EXPERIMENTS) -> dict[str, RunOutcome]:
    """Run experiments without faults; return their outcomes by name.

    Raises:
        RuntimeError: an experiment fails without faults.
    """
    outcomes = {}
    for name in names:
        alone = Schedule(0, name, ())
        verdict, outcome = _run_of(lab, alone).run(None)
        if outcome is None or verdict.complaints:
            raise RuntimeError(f"{name} fails undisturbed: {verdict.complaints}")
        outcomes[name] = outcome
    return outcomes


def run_schedule(lab: Lab, schedule: Schedule, expected: dict[str, RunOutcome]) -> Verdict:
    """Run a schedule on a lab with a correct clock, and reset the clock afterwards."""
    lab.wait()
    if schedule.cold:
        lab.forget()
    verdict, _ = _run_of(lab, schedule).run(expected[schedule.experiment])
    lab.move_clock(0.0)
    return verdict


def _run_of(lab: Lab, schedule: Schedule) -> ScheduleRun:
    predicts = schedule.experiment in PREDICTIONS
    return (PredictionRun if predicts else ScheduleRun)(lab, schedule)


class Campaign:
    """Runs schedules and counts their results."""

    def __init__(
        self, forks: ForkServer, folder: Path, faults: Sequence[Fault] = SEARCH_FAULTS
    ) -> None:
        self._forks = forks
        self._folder = folder
        self._faults = faults
        self._expected: dict[str, RunOutcome] = {}
        self._injected: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._verdicts: list[Verdict] = []
        self._labs = 0
        self._served: Mapping[str, object] | None = None
        self._served_failed: list[int] = []

    @property
    def failed(self) -> list[int]:
        """The seeds of the schedules that failed."""
        failed = [verdict.schedule.seed for verdict in self._verdicts if verdict.complaints]
        return failed + self._served_failed

    @property
    def idle(self) -> list[str]:
        """The kinds of faults that had no effect in any schedule."""
        return sorted(
            fault
            for fault, times in self._missed.items()
            if times >= CHANCES and not self._injected[fault]
        )

    def search(self, seeds: Iterable[int]) -> None:
        """Run the schedules of some seeds on searches."""
        self._run_all([draw(seed, JOBS, self._faults) for seed in seeds], EXPERIMENTS)

    def predict(self, seeds: Iterable[int]) -> None:
        """Run the schedules of some seeds on predictions."""
        self._run_all([draw_prediction(seed, PREDICTION_JOBS) for seed in seeds], PREDICTIONS)

    def draft(self, seeds: Iterable[int]) -> None:
        """Run the schedules of some seeds on searches with drafts."""
        self._run_all([draw_drafts(seed, JOBS) for seed in seeds], (DRAFTS,), supervised=False)

    def serve(self, seeds: Sequence[int]) -> None:
        """Run the schedules of some seeds on a served ensemble."""
        if seeds:
            campaign = run_served(self._forks, self._folder / "served", seeds)
            self._served, self._served_failed = campaign.summary(), campaign.failed

    def _run_all(
        self, waiting: list[Schedule], names: Sequence[str], *, supervised: bool = True
    ) -> None:
        """Run schedules of experiments by name on one lab, or on several after failures."""
        while waiting:
            with self._new_lab(supervised=supervised) as lab:
                if not self._expected.keys() >= set(names):
                    self._expected |= run_undisturbed(lab, names)
                while waiting and self._passes(lab, waiting.pop(0)):
                    pass

    def _new_lab(self, *, supervised: bool = True) -> AbstractContextManager[Lab]:
        self._labs += 1
        folder = self._folder / f"lab-{self._labs}"
        return open_lab(self._forks, folder, supervised=supervised)

    def summary(self) -> dict[str, object]:
        """Return counts of schedules and faults, and times of recovery."""
        recoveries = [verdict.recovery for verdict in self._verdicts if not verdict.complaints]
        return {
            "schedules": len(self._verdicts),
            "failed_seeds": self.failed,
            "faults": dict(sorted(self._injected.items())),
            "nothing_left_to_break": dict(sorted(self._missed.items())),
            "never_anything_to_break": self.idle,
            "seconds_a_schedule": _quantiles([one.seconds for one in self._verdicts]),
            "seconds_from_last_fault_to_end": _quantiles(recoveries),
            **({} if self._served is None else {"served": self._served}),
        }

    def _passes(self, lab: Lab, schedule: Schedule) -> bool:
        verdict = run_schedule(lab, schedule, self._expected)
        self._verdicts.append(verdict)
        for injection in verdict.injections:
            counted = self._injected if injection.did else self._missed
            counted[str(injection.step.fault)] += 1
        _print_verdict(verdict)
        if verdict.complaints:
            command = repeat_command(_kind(schedule), schedule.seed, self._faults)
            print(f"    repeat: {command}", flush=True)
        return not verdict.complaints


def repeat_command(kind: str, seed: int, faults: Sequence[Fault]) -> str:
    """Return the command that runs one schedule of a kind and nothing else."""
    counts = " ".join(f"--{name} {int(name == kind)}" for name in KINDS)
    chosen = kind == "schedules" and set(faults) != set(SEARCH_FAULTS)
    only = f" --faults {','.join(faults)}" if chosen else ""
    return f"python -m verification.chaos {counts} --seed {seed}{only} --no-planted"


def _kind(schedule: Schedule) -> str:
    """Return the kind of a schedule, one of `KINDS`."""
    if schedule.experiment in PREDICTIONS:
        return "predictions"
    return "drafts" if schedule.experiment == DRAFTS else "schedules"


def _print_verdict(verdict: Verdict) -> None:
    """Print the result of a schedule."""
    schedule = verdict.schedule
    state = "FAILED" if verdict.complaints else "ok"
    now = time.strftime("%H:%M:%S")
    print(
        f"{now} seed {schedule.seed} {state}: {verdict.seconds:.1f} s, "
        f"{verdict.recovery:.1f} s after the last fault",
        flush=True,
    )
    print(f"    {schedule}", flush=True)
    for injection in verdict.injections:
        print(f"    - {injection.did or f'{injection.step.fault}: too late'}", flush=True)
    for complaint in verdict.complaints:
        print(f"    ! {complaint}", flush=True)


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    with contextlib.suppress(statistics.StatisticsError):
        middle = statistics.median(values)
        return {"median": round(middle, 1), "worst": round(max(values), 1)}
    return {}
