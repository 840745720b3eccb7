"""Execution of one schedule on a running lab, and its verdict."""

import random
import threading
import time
import traceback
import uuid
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from modnorm.client.client import Client
from modnorm.errors import ModnormError, UnavailableError
from modnorm.spec import ExperimentSpec
from verification.chaos import faults
from verification.chaos.faults import FaultContext
from verification.chaos.lab import Lab
from verification.chaos.outcome import (
    Observation,
    Observer,
    RunOutcome,
    broken_invariants,
    read_outcome,
)
from verification.chaos.schedules import Schedule, Step, make_experiment
from verification.labs.waiting import HANG_SECONDS

_LOOK_SECONDS = 0.1


@dataclass
class Injection:
    """The result of one step."""

    step: Step
    did: str | None = None
    """Description of the fault; None if it had no effect."""
    over: float = 0.0
    """Time of its end, on the monotonic clock."""


@dataclass
class Verdict:
    schedule: Schedule
    injections: list[Injection] = field(default_factory=list)
    seconds: float = 0.0
    recovery: float = 0.0
    complaints: list[str] = field(default_factory=list)


class ScheduleRun:
    def __init__(self, lab: Lab, schedule: Schedule) -> None:
        self._lab = lab
        self._request = uuid.uuid4().hex
        self._verdict = Verdict(schedule, [Injection(step) for step in schedule.steps])
        self._cursors: list[int] = []
        self._observed = Observation()

    def run(self, expected: RunOutcome | None) -> tuple[Verdict, RunOutcome | None]:
        """Act as the client, inject the faults, compare with the undisturbed outcome, if any."""
        began = time.monotonic()
        threads = [threading.Thread(target=self._act_as_client, daemon=True)]
        threads += [
            threading.Thread(target=self._inject, args=(injection,), daemon=True)
            for injection in self._verdict.injections
        ]
        for thread in threads:
            thread.start()
        ended = self._wait(threads[1:])
        self._verdict.seconds = time.monotonic() - began
        outcome = self._judge(expected, threads[0]) if ended else None
        self._verdict.complaints += self._lab.errors
        self._lab.errors.clear()
        return self._verdict, outcome

    def _wait(self, faults: list[threading.Thread]) -> bool:
        """Wait for the end of the experiment and of all faults; return False if it is stuck."""
        observer = self._observer()
        ended_at, quiet_since = None, None
        try:
            while True:
                self._observed = observer.observe()
                now = time.monotonic()
                if ended_at is None and self._observed.ended:
                    ended_at = now
                if quiet_since is None and not any(thread.is_alive() for thread in faults):
                    quiet_since = now
                if quiet_since is not None and ended_at is not None:
                    injections = self._verdict.injections
                    last = max((one.over for one in injections if one.did), default=ended_at)
                    self._verdict.recovery = max(0.0, ended_at - last)
                    return True
                if quiet_since is not None and now > quiet_since + HANG_SECONDS:
                    self._complain(f"stuck for {HANG_SECONDS:g} s: {self._observed}")
                    return False
                time.sleep(_LOOK_SECONDS)
        finally:
            observer.close()

    def _inject(self, injection: Injection) -> None:
        step = injection.step
        observer = self._observer()
        try:
            while step.after and (observation := observer.observe()).done < step.after:
                if observation.ended:
                    return
                time.sleep(_LOOK_SECONDS / 2)
            time.sleep(step.delay)
            context = FaultContext(self._lab, observer, random.Random(step.seed))
            injection.did = getattr(faults, step.fault)(context)
        except Exception:  # noqa: BLE001 - any error fails the schedule
            self._complain(f"{step.fault} could not be injected: {traceback.format_exc()}")
        finally:
            injection.over = time.monotonic()
            observer.close()

    def _observer(self) -> Observer:
        """Return a new observer, for one thread."""
        return Observer(self._lab.database, self._request)

    def _act_as_client(self) -> None:
        """Submit until the experiment is stored, then follow its events to the end."""
        spec = make_experiment(self._verdict.schedule.experiment)
        try:
            with Client(self._lab.server) as client:
                submitted = _submit(client, spec, self._request)
                for event in client.watch(submitted):
                    self._cursors.append(event.cursor)
        except ModnormError as error:
            self._complain(f"the client met {type(error).__name__}: {error}")

    def _judge(self, expected: RunOutcome | None, watcher: threading.Thread) -> RunOutcome | None:
        self._lab.wait()
        if self._observed.state != "SUCCEEDED":
            query = "SELECT error FROM experiments WHERE id = %s"
            with closing(self._observer()) as observer:
                errors = observer.rows(query, self._observed.experiment)
            self._complain(f"the experiment ended as {self._observed.state}: {errors}")
            return None
        watcher.join(HANG_SECONDS)
        if self._cursors != list(range(1, len(self._cursors) + 1)) or watcher.is_alive():
            self._complain(f"a watcher saw the events {self._cursors}")
        read = partial(read_outcome, self._lab.database, self._lab.server)
        try:
            outcome = read(self._observed.experiment)
        except ModnormError:  # the last fault may have broken the connection
            time.sleep(1)
            outcome = read(self._observed.experiment)
        if expected is not None:
            differences = expected.differences(outcome)
            self._verdict.complaints += (one[:400] for one in differences)
        experiment = self._observed.experiment
        self._verdict.complaints += broken_invariants(self._lab.database, experiment)
        return outcome

    def _complain(self, what: str) -> None:
        self._verdict.complaints.append(what)


@retry(
    retry=retry_if_exception_type(UnavailableError),
    stop=stop_after_delay(HANG_SECONDS),
    wait=wait_fixed(0.2),
    reraise=True,
)
def _submit(client: Client, spec: ExperimentSpec, request: str) -> str:
    """Submit an experiment, again while the lab is down; return its id."""
    return client.submit(spec, request).id
