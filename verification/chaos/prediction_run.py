"""Execution of one schedule on a prediction: an ensemble answers questions of a client."""

import json
import random
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

from typing_extensions import override

from modnorm.client.client import Client
from modnorm.errors import UnavailableError
from modnorm.tasks import get_task
from modnorm.tasks.columns import rows_digest
from modnorm.tasks.row_loading import parse_question, read_raw_questions
from modnorm.tasks.sources import BUNDLED
from verification.chaos.chaos_lab import Lab
from verification.chaos.fault_schedule import PREDICTED, PREDICTIONS, Schedule
from verification.chaos.observer import BY_QUESTIONS, Observer
from verification.chaos.run_outcome import RunOutcome, broken_prediction
from verification.chaos.schedule_run import ScheduleRun
from verification.chaos.small_experiments import make_experiment
from verification.labs.waiting import HANG_SECONDS

if TYPE_CHECKING:
    from modnorm.prediction.ranked_votes import Prediction

QUESTIONS = 24
_LEASES = "SELECT sum(token) FROM jobs WHERE experiment_id = %s"


class PredictionRun(ScheduleRun):
    """One schedule on a prediction; each schedule asks the questions in another order."""

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
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            try:
                self._predictions = self._ask(client)
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(0.2)

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

    @override
    def _broken(self) -> list[str]:
        return list(broken_prediction(self._lab.database, self._observed.experiment))


def _questions(source: random.Random) -> list[Mapping[str, object]]:
    """Return the questions in a random order."""
    rows = read_raw_questions(BUNDLED / "word-problems-heldout.jsonl")
    questions = [{"question": row["question"]} for _, row in islice(rows, QUESTIONS)]
    return source.sample(questions, k=QUESTIONS)


def _search(client: Client) -> str:
    """Return the id of the experiment whose ensemble answers, once it has ended.

    Its request id is constant, so a lab runs it once.
    """
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            experiment = client.submit(make_experiment(PREDICTED), PREDICTED).id
            for _ in client.watch(experiment):
                pass
        except UnavailableError:
            if time.monotonic() > deadline:
                raise
        else:
            return experiment
        time.sleep(0.2)
