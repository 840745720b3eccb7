"""Execution of one schedule on a running lab, and its verdict."""

import json
import random
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from modnorm.client.client import Client
from modnorm.errors import ModnormError, UnavailableError
from modnorm.tasks import get_task
from modnorm.tasks.columns import rows_digest
from modnorm.tasks.row_loading import BUNDLED, parse_question, read_raw_questions
from verification.chaos import faults
from verification.chaos.faults import FaultContext
from verification.chaos.lab import Lab
from verification.chaos.outcome import (
    BY_QUESTIONS,
    INVARIANTS,
    INVARIANTS_OF_PREDICTIONS,
    Observation,
    Observer,
    RunOutcome,
    broken_invariants,
    read_outcome,
)
from verification.chaos.schedules import PREDICTED, PREDICTIONS, Schedule, Step, make_experiment
from verification.labs.waiting import HANG_SECONDS

if TYPE_CHECKING:
    from modnorm.prediction.ranked_votes import Prediction

ResultT = TypeVar("ResultT")

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
    """The verdict on a schedule."""

    schedule: Schedule
    injections: list[Injection] = field(default_factory=list)
    seconds: float = 0.0
    recovery: float = 0.0
    complaints: list[str] = field(default_factory=list)


class ScheduleRun:
    """One schedule on a lab."""

    invariants: Iterable[str] = tuple(INVARIANTS)

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
        try:
            with Client(self._lab.server) as client:
                self._follow(client)
        except ModnormError as error:
            self._complain(f"the client met {type(error).__name__}: {error}")

    def _follow(self, client: Client) -> None:
        """Submit until the experiment is stored, then follow its events to the end."""
        spec = make_experiment(self._verdict.schedule.experiment)
        submitted = _patiently(lambda: client.submit(spec, self._request))
        for event in client.watch(submitted.id):
            self._cursors.append(event.cursor)

    def _judge(self, expected: RunOutcome | None, watcher: threading.Thread) -> RunOutcome | None:
        self._lab.wait()
        if self._observed.state != "SUCCEEDED":
            query = "SELECT error FROM experiments WHERE id = %s"
            with closing(self._observer()) as observer:
                errors = observer.rows(query, self._observed.experiment)
            self._complain(f"the experiment ended as {self._observed.state}: {errors}")
            return None
        watcher.join(HANG_SECONDS)
        self._check_client(is_waiting=watcher.is_alive())
        outcome = self._read()
        if expected is not None:
            differences = expected.differences(outcome)
            self._verdict.complaints += (one[:400] for one in differences)
        experiment = self._observed.experiment
        broken = broken_invariants(self._lab.database, experiment, self.invariants)
        self._verdict.complaints += broken
        return outcome

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

    def _complain(self, what: str) -> None:
        self._verdict.complaints.append(what)


QUESTIONS = 24
_LEASES = "SELECT sum(token) FROM jobs WHERE experiment_id = %s"


class PredictionRun(ScheduleRun):
    """One schedule on a prediction; each schedule asks the questions in another order."""

    invariants = INVARIANTS_OF_PREDICTIONS

    def __init__(self, lab: Lab, schedule: Schedule) -> None:
        super().__init__(lab, schedule)
        self._questions = _questions(random.Random(f"{schedule.seed} {schedule}"))
        self._ask_all = schedule.experiment == PREDICTIONS[-1]
        self._predictions: list[Prediction] = []
        with Client(lab.server) as client:
            self._ensemble = _search(client)

    @override
    def _observer(self) -> Observer:
        task = get_task(make_experiment(PREDICTED).task.name)
        rows = [parse_question(task, each, "question") for each in self._questions]
        return Observer(self._lab.database, rows_digest(rows), BY_QUESTIONS)

    @override
    def _follow(self, client: Client) -> None:
        """Ask until all questions are answered."""
        self._predictions = _patiently(lambda: self._ask(client))

    def _ask(self, client: Client) -> "list[Prediction]":
        asked = client.predict(self._ensemble, self._questions, ask_all=self._ask_all)
        return list(asked)

    @override
    def _check_client(self, *, is_waiting: bool) -> None:
        """Complain unless one prediction came for each question, and an equal request is free."""
        rows = sorted(prediction.row for prediction in self._predictions)
        if rows != list(range(QUESTIONS)) or is_waiting:
            self._complain(f"the client received predictions of the rows {rows}")
        leases = self._leases()
        with Client(self._lab.server) as client:
            again = self._ask(client)
        if self._predictions != again:
            self._complain("an equal request has other answers")
        if self._leases() != leases:
            self._complain("an equal request computed again")

    def _leases(self) -> object:
        with closing(self._observer()) as observer:
            return observer.rows(_LEASES, self._observed.experiment)

    @override
    def _read(self) -> RunOutcome:
        """Return each question with its answers."""
        answered = [
            (json.dumps(self._questions[each.row]), json.dumps(asdict(each) | {"row": None}))
            for each in self._predictions
        ]
        return RunOutcome("", {"predictions": sorted(answered)})


def _questions(source: random.Random) -> list[Mapping[str, object]]:
    """Return the questions in a random order."""
    rows = read_raw_questions(BUNDLED / "word-problems-heldout.jsonl")
    questions = [{"question": row["question"]} for _, row in islice(rows, QUESTIONS)]
    return source.sample(questions, k=QUESTIONS)


def _search(client: Client) -> str:
    """Return the id of the experiment whose ensemble answers, once it has ended.

    Its request id is constant, so a lab runs it once.
    """

    def finish() -> str:
        experiment = client.submit(make_experiment(PREDICTED), PREDICTED).id
        for _ in client.watch(experiment):
            pass
        return experiment

    return _patiently(finish)


def _patiently(call: Callable[[], ResultT]) -> ResultT:
    """Repeat a call while the lab is down."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            return call()
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)
