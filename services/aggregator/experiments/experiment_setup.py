"""Setup of experiments from creation to selection, by one task per experiment.

Each step is a compare-and-set on the stored state. After a restart at most one idempotent call is
repeated.
"""

import asyncio
import json
import logging
import math
import random
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

from modnorm.errors import CancelledError, EngineError, ModnormError, UnavailableError
from modnorm.perturbation.descriptor import Descriptor, base_descriptor
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.experiments.upstream_services import Calibrator, Prompts, Sampler
from modnorm.services.aggregator.storage.lookups import StoredText
from modnorm.services.aggregator.storage.tables import IN_SETUP, Experiment, ExperimentState
from modnorm.services.common.logging import internal_error
from modnorm.spec import MethodSpec
from modnorm.tasks.task_errors import render_prompts

FIRST_PAUSE = 0.5
"""Seconds before the first retry of a failed step."""
BREAKDOWN_RETRIES = 3
"""Retries of a step after internal errors of its service."""
_BASE = MethodSpec(name="base")

logger = logging.getLogger(__name__)


class Conductor:
    """Takes the steps of every experiment until it reaches its selection."""

    def __init__(  # noqa: PLR0913 - all that a step may use
        self,
        experiments: ExperimentStore,
        sampler: Sampler,
        calibrator: Calibrator,
        follow_up: Callable[[Change], None],
        *,
        timed: Callable[[ExperimentState], AbstractContextManager[object]],
        retry_seconds: float,
        outage_seconds: float = math.inf,
    ) -> None:
        self._experiments = experiments
        self._sampler = sampler
        self._calibrator = calibrator
        self._follow_up = follow_up
        self._timed = timed
        self._retry_seconds = retry_seconds
        self._outage_seconds = outage_seconds
        self._driven: dict[str, asyncio.Task[None]] = {}

    async def drive_all(self) -> None:
        """Start to drive every experiment in setup that is not driven yet."""
        self._driven = {name: task for name, task in self._driven.items() if not task.done()}
        for experiment_id in await asyncio.to_thread(self._experiments.driven):
            self.drive(experiment_id)

    def drive(self, experiment_id: str) -> None:
        """Drive one experiment in a background task, unless one drives it already."""
        task = self._driven.get(experiment_id)
        if task is None or task.done():
            self._driven[experiment_id] = asyncio.create_task(self._drive(experiment_id))

    def drop(self, experiment_id: str) -> None:
        """Stop driving an experiment that has ended, even during a call."""
        task = self._driven.get(experiment_id)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Stop driving all experiments; the next aggregator resumes them."""
        tasks = list(self._driven.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drive(self, experiment_id: str) -> None:
        """Take all steps; an unexpected error ends the experiment.

        If that cannot be stored either, the next `drive_all` tries again.
        """
        names = {"experiment": experiment_id}
        try:
            try:
                while await self._retry_step(experiment_id):
                    pass
            except UnavailableError:
                raise
            except Exception:
                error_id = uuid.uuid4().hex
                logger.exception("unexpected error", extra={**names, "error_id": error_id})
                await self._fail(experiment_id, internal_error(error_id))
        except UnavailableError as error:
            logger.warning("postponed: %s", error, extra=names)
        except Exception:
            logger.exception("the failure of the experiment cannot be stored", extra=names)

    async def _retry_step(self, experiment_id: str) -> bool:
        """Take one step, with retries during an outage and a few after internal errors.

        A stopping service cancels its calls, which counts as an outage.
        """
        recorded, attempt, breakdowns, give_up = "", 0, 0, math.inf
        while True:
            try:
                return await self._step(experiment_id)
            except ModnormError as error:
                # An engine failed, or a service had an internal error such as an I/O error.
                broke_down = type(error) is ModnormError or isinstance(error, EngineError)
                breakdowns += broke_down
                temporary = broke_down or isinstance(error, UnavailableError | CancelledError)
                give_up = min(give_up, time.monotonic() + self._outage_seconds)
                spent = breakdowns > BREAKDOWN_RETRIES or time.monotonic() >= give_up
                if spent or not temporary:
                    await self._fail(experiment_id, error.reason, error.remedy or "")
                    return False
                if error.message != recorded:
                    recorded = error.message
                    wait = self._experiments.wait_for
                    await asyncio.to_thread(wait, experiment_id, error.message)
                    self._follow_up(Change(experiment_id))
            longest = min(FIRST_PAUSE * 2.0 ** min(attempt, 20), self._retry_seconds)
            # Randomised, so that experiments do not synchronise.
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))
            attempt += 1

    async def _fail(self, experiment_id: str, reason: str, remedy: str = "") -> None:
        await asyncio.to_thread(self._experiments.fail, experiment_id, reason, remedy)
        self._follow_up(Change(experiment_id))

    async def _step(self, experiment_id: str) -> bool:
        """Take the next step of an experiment; return False if none is due now."""
        experiment = (await asyncio.to_thread(self._experiments.get, experiment_id)).experiment
        if experiment.state not in IN_SETUP:
            return False
        with self._timed(experiment.state):
            if experiment.state is ExperimentState.PENDING:
                examples = min(experiment.spec.calibration.examples, experiment.selection_rows)
                leave = self._experiments.leave_pending
                await asyncio.to_thread(leave, experiment_id, examples)
            elif experiment.state is ExperimentState.CALIBRATING:
                await self._calibrate(experiment)
            else:
                await self._sample(experiment)
        self._follow_up(Change(experiment_id))
        names = {"experiment": experiment_id, "state": experiment.state.name}
        logger.info("step taken", extra=names)
        return True

    async def _calibrate(self, experiment: Experiment) -> None:
        prompts = await asyncio.to_thread(self._calibration_prompts, experiment)
        stream = self._calibrator.calibrate(experiment.spec, experiment.model_digest, prompts)
        async for response in stream:
            if response.WhichOneof("result") == "profile":
                profile = StoredText(response.profile.digest, response.profile.json)
                await asyncio.to_thread(self._experiments.profiled, experiment.id, profile)
                return
            done, total = response.progress.examples_done, response.progress.examples_total
            wanted = await asyncio.to_thread(
                self._experiments.calibrated, experiment.id, done, total
            )
            if not wanted:
                return
            self._follow_up(Change(experiment.id))
        raise UnavailableError("the calibrator ended without a profile")

    def _calibration_prompts(self, experiment: Experiment) -> Prompts:
        """Return the prompts of the first selection rows; loads them and perhaps a plugin."""
        lines = self._experiments.artifact(experiment.selection_digest).split("\n")
        rows = [json.loads(line) for line in lines[: experiment.spec.calibration.examples]]
        return render_prompts(experiment.task(), rows, "selection row")

    async def _sample(self, experiment: Experiment) -> None:
        spec, digest = experiment.spec, experiment.model_digest
        profile_json = None
        if experiment.profile_digest is not None:
            load = self._experiments.artifact
            profile_json = await asyncio.to_thread(load, experiment.profile_digest)
        scale_map = await self._sampler.scale_map(spec.model, digest, spec.method, profile_json)
        base_map = await self._sampler.scale_map(spec.model, digest, _BASE)
        population: tuple[Descriptor, ...] = ()
        if spec.iterative is None:
            population = await self._sampler.descriptors(spec, scale_map.digest)
        base = base_descriptor(base_map.digest, spec.population.noise)
        maps = (scale_map, base_map)
        sampled = self._experiments.sampled
        change = await asyncio.to_thread(sampled, experiment.id, maps, base, population)
        if change is not None:
            self._follow_up(change)
