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


class ScriptedSteps:
    """Raises the errors of a list, one per step, then has no further step."""

    def __init__(self, errors, *, failing=None):
        self.errors = list(errors)
        self.failing = failing
        self.failures = []

    async def step(self, experiment_id):
        if self.errors:
            raise self.errors.pop(0)
        return False

    async def wait_for(self, experiment_id, reason):
        pass

    async def fail(self, experiment_id, reason, remedy=""):
        if self.failing:
            raise self.failing
        self.failures.append(f"{reason} ({remedy})" if remedy else reason)


def lead(journey, **settings):
    """Drive an experiment to the end of its task; return errors of the event loop."""
    complaints = []
    experiments = create_autospec(ExperimentStore)

    async def scenario():
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context)
        )
        leader = Conductor(experiments, journey, retry_seconds=0.001, **settings)
        leader.drive("e")
        (task,) = leader._driven.values()
        await asyncio.wait([task])

    asyncio.run(scenario())
    return complaints


@pytest.mark.parametrize("kind", [ModnormError, EngineError])
def test_an_internal_error_is_retried_a_few_times(kind):
    journey = ScriptedSteps([kind("disk")] * BREAKDOWN_RETRIES)
    lead(journey)
    assert journey.failures == []
    journey = ScriptedSteps([kind("disk")] * 10)
    lead(journey)
    assert journey.failures == ["disk"]
    assert len(journey.errors) == 10 - 1 - BREAKDOWN_RETRIES


def test_outages_do_not_count_as_breakdowns():
    errors = [UnavailableError("down"), CancelledError("stopping")] * 5
    journey = ScriptedSteps([*errors, *[ModnormError("disk")] * BREAKDOWN_RETRIES])
    lead(journey)
    assert journey.failures == []


def test_an_outage_that_lasts_too_long_is_a_failure():
    journey = ScriptedSteps([UnavailableError("no space left", remedy="make room")] * 1000)
    lead(journey, outage_seconds=0.05)
    assert journey.failures == ["no space left (make room)"]
    assert 0 < len(journey.errors) < 999


def test_invalid_input_is_not_retried():
    journey = ScriptedSteps([InvalidInputError("wrong")] * 2)
    lead(journey)
    assert journey.failures == ["wrong"]
    assert len(journey.errors) == 1


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (UnavailableError("no database"), "postponed: no database"),
        (OSError("disk"), "the failure of the experiment cannot be stored"),
    ],
)
@pytest.mark.parametrize("met", [RuntimeError("defect"), InvalidInputError("wrong")])
def test_a_failure_that_cannot_be_stored_is_logged(caplog, failing, message, met):
    journey = ScriptedSteps([met], failing=failing)
    with caplog.at_level(logging.WARNING, experiment_setup.__name__):
        complaints = lead(journey)
    assert complaints == []
    assert caplog.messages[-1] == message
