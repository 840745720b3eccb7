import asyncio
import logging
from unittest.mock import create_autospec

import pytest

from modnorm.errors import (
    CancelledError,
    EngineError,
    InvalidInputError,
    ModnormError,
    UnavailableError,
)
from modnorm.services.aggregator.experiments import experiment_setup
from modnorm.services.aggregator.experiments.experiment_setup import BREAKDOWN_RETRIES, Conductor
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.upstream_services import Calibrator, Sampler


class ScriptedConductor(Conductor):
    """Raises the errors of a list, one per step, then has no further step."""

    def __init__(self, errors, *, failing=None, **settings):
        experiments = create_autospec(ExperimentStore)
        experiments.fail.side_effect = self.note
        settings = {"retry_seconds": 0.001, "timed": None, **settings}
        sampler, calibrator = create_autospec(Sampler), create_autospec(Calibrator)
        super().__init__(experiments, sampler, calibrator, lambda _change: None, **settings)
        self.errors = list(errors)
        self.failing = failing
        self.failures = []

    async def _step(self, experiment_id):
        if self.errors:
            raise self.errors.pop(0)
        return False

    def note(self, experiment_id, reason, remedy):
        if self.failing:
            raise self.failing
        self.failures.append(f"{reason} ({remedy})" if remedy else reason)

    def lead(self):
        """Drive an experiment to the end of its task; return errors of the event loop."""
        complaints = []

        async def scenario():
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: complaints.append(context)
            )
            self.drive("e")
            (task,) = self._driven.values()
            await asyncio.wait([task])

        asyncio.run(scenario())
        return complaints


@pytest.mark.parametrize("kind", [ModnormError, EngineError])
def test_an_internal_error_is_retried_a_few_times(kind):
    conductor = ScriptedConductor([kind("disk")] * BREAKDOWN_RETRIES)
    conductor.lead()
    assert conductor.failures == []
    conductor = ScriptedConductor([kind("disk")] * 10)
    conductor.lead()
    assert conductor.failures == ["disk"]
    assert len(conductor.errors) == 10 - 1 - BREAKDOWN_RETRIES


def test_outages_do_not_count_as_breakdowns():
    errors = [UnavailableError("down"), CancelledError("stopping")] * 5
    conductor = ScriptedConductor([*errors, *[ModnormError("disk")] * BREAKDOWN_RETRIES])
    conductor.lead()
    assert conductor.failures == []


def test_an_outage_that_lasts_too_long_is_a_failure():
    errors = [UnavailableError("no space left", remedy="make room")] * 1000
    conductor = ScriptedConductor(errors, outage_seconds=0.05)
    conductor.lead()
    assert conductor.failures == ["no space left (make room)"]
    assert 0 < len(conductor.errors) < 999


def test_invalid_input_is_not_retried():
    conductor = ScriptedConductor([InvalidInputError("wrong")] * 2)
    conductor.lead()
    assert conductor.failures == ["wrong"]
    assert len(conductor.errors) == 1


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (UnavailableError("no database"), "postponed: no database"),
        (OSError("disk"), "the failure of the experiment cannot be stored"),
    ],
)
@pytest.mark.parametrize("met", [RuntimeError("defect"), InvalidInputError("wrong")])
def test_a_failure_that_cannot_be_stored_is_logged(caplog, failing, message, met):
    conductor = ScriptedConductor([met], failing=failing)
    with caplog.at_level(logging.WARNING, experiment_setup.__name__):
        complaints = conductor.lead()
    assert complaints == []
    assert caplog.messages[-1] == message
