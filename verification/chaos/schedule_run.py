"""Execution of one schedule on a running lab, and its verdict."""

import random
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from modnorm.client.client import Client
from modnorm.errors import ModnormError, UnavailableError
from verification.chaos.chaos_lab import Lab
from verification.chaos.fault_schedule import Schedule, Step
from verification.chaos.faults import INJECT, FaultContext
from verification.chaos.observer import Observation, Observer
from verification.chaos.run_outcome import RunOutcome, broken_invariants, read_outcome
from verification.chaos.small_experiments import make_experiment
from verification.labs.waiting import HANG_SECONDS

_LOOK_SECONDS = 0.1


@dataclass
class Injection:
    """The result of one step.

    Attributes:
        step: The step.
        did: Description of the fault; None if it had no effect.
        over: Time of its end, on the monotonic clock.
    """

    step: Step
    did: str | None = None
    over: float = 0.0


@dataclass
class Verdict:
    """The verdict on a schedule."""

    schedule: Schedule
    injections: list[Injection] = field(default_factory=list)
    seconds: float = 0.0
    recovery: float = 0.0
    complaints: list[str] = field(default_factory=list)


class ScheduleRun:
    """One schedule on a lab."""

    def __init__(self, lab: Lab, schedule: Schedule) -> None:
        self._lab = lab
        self._request = uuid.uuid4().hex
        self._verdict = Verdict(schedule, [Injection(step) for step in schedule.steps])
        self._cursors: list[int] = []
        self._observed = Observation()

    def run(self, expected: RunOutcome | None) -> tuple[Verdict, RunOutcome | None]:
        """Act as the client, inject the faults, and compare the outcome.

        Args:
            expected: The outcome of the undisturbed run; None during that run.
        """
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
                    self._note_recovery(ended_at)
                    return True
                if quiet_since is not None and now > quiet_since + HANG_SECONDS:
                    self._complain(f"stuck for {HANG_SECONDS:g} s: {self._observed}")
                    return False
                time.sleep(_LOOK_SECONDS)
        finally:
            observer.close()

    def _note_recovery(self, ended_at: float) -> None:
        last = max((one.over for one in self._verdict.injections if one.did), default=ended_at)
        self._verdict.recovery = max(0.0, ended_at - last)

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
            injection.did = INJECT[step.fault](context)
        except Exception:  # noqa: BLE001 - any error fails the schedule
            self._complain(f"{step.fault} could not be injected: {traceback.format_exc()}")
        finally:
            injection.over = time.monotonic()
            observer.close()

    def _observer(self) -> Observer:
        """Return a new observer, for one thread."""
        return Observer(self._lab.database, self._request)

    def _act_as_client(self) -> None:
        try:
            with Client(self._lab.server) as client:
                self._follow(client)
        except ModnormError as error:
            self._complain(f"the client met {type(error).__name__}: {error}")

    def _follow(self, client: Client) -> None:
        """Submit until the experiment is stored, then follow its events to the end."""
        for event in client.watch(self._submit(client)):
            self._cursors.append(event.cursor)

    def _submit(self, client: Client) -> str:
        spec = make_experiment(self._verdict.schedule.experiment)
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            try:
                return client.submit(spec, self._request).id
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def _judge(self, expected: RunOutcome | None, watcher: threading.Thread) -> RunOutcome | None:
        self._lab.wait()
        if self._observed.state != "SUCCEEDED":
            self._complain(f"the experiment ended as {self._observed.state}: {self._why()}")
            return None
        watcher.join(HANG_SECONDS)
        self._check_client(is_waiting=watcher.is_alive())
        outcome = self._read()
        if expected is not None:
            self._verdict.complaints += self._differences(expected, outcome)
        self._verdict.complaints += self._broken()
        return outcome

    def _broken(self) -> list[str]:
        """Return the violated invariants."""
        return list(broken_invariants(self._lab.database, self._observed.experiment))

    def _check_client(self, *, is_waiting: bool) -> None:
        """Complain if the client has not received every event once."""
        if self._cursors != list(range(1, len(self._cursors) + 1)) or is_waiting:
            self._complain(f"a watcher saw the events {self._cursors}")

    def _read(self) -> RunOutcome:
        """Read the outcome; retry, since the last fault may have broken the connection."""
        with suppress(ModnormError):
            return read_outcome(self._lab.database, self._lab.server, self._observed.experiment)
        time.sleep(1)
        return read_outcome(self._lab.database, self._lab.server, self._observed.experiment)

    @staticmethod
    def _differences(expected: RunOutcome, outcome: RunOutcome) -> Iterator[str]:
        for difference in expected.differences(outcome):
            yield difference if len(difference) < 400 else f"{difference[:400]} ..."

    def _why(self) -> str:
        observer = self._observer()
        query = "SELECT error FROM experiments WHERE id = %s"
        errors = observer.rows(query, self._observed.experiment)
        observer.close()
        return str(errors[0][0]) if errors else "the database does not say"

    def _complain(self, what: str) -> None:
        self._verdict.complaints.append(what)
