"""Setup of experiments from creation to selection, by one task per experiment.

Each step is a compare-and-set on the stored state. After a restart, or beside a second aggregator,
at most one idempotent call is repeated.
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
from functools import partial

from modnorm.errors import CancelledError, EngineError, ModnormError, UnavailableError
from modnorm.perturbation.descriptor import Descriptor, base_descriptor
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.experiments.result_store import ResultStore
from modnorm.services.aggregator.experiments.upstream_services import Calibrator, Prompts, Sampler
from modnorm.services.aggregator.storage.lookups import StoredText
from modnorm.services.aggregator.storage.states import IN_SETUP, ArtifactKind, ExperimentState
from modnorm.services.aggregator.storage.tables import Experiment
from modnorm.services.common.logging import internal_error
from modnorm.spec import ExperimentSpec, MethodSpec
from modnorm.tasks.task_errors import render_prompts

FIRST_PAUSE = 0.5
"""Seconds before the first retry of a failed step."""
BREAKDOWN_RETRIES = 3
"""Retries of a step after internal errors of its service."""
_BASE = MethodSpec(name="base")

logger = logging.getLogger(__name__)


class SetupSteps:
    """The steps of one experiment up to its selection."""

    def __init__(  # noqa: PLR0913 - all that a step may use
        self,
        *,
        experiments: ExperimentStore,
        results: ResultStore,
        sampler: Sampler,
        calibrator: Calibrator,
        follow_up: Callable[[Change], None],
        timed: Callable[[ExperimentState], AbstractContextManager[None]],
    ) -> None:
        self._experiments = experiments
        self._results = results
        self._sampler = sampler
        self._calibrator = calibrator
        self._follow_up = follow_up
        self._timed = timed

    async def step(self, experiment_id: str) -> bool:
        """Take the next step of an experiment; return False if none is due now."""
        record = await asyncio.to_thread(self._experiments.get, experiment_id)
        experiment = record.experiment
        if taken := experiment.state in IN_SETUP:
            await self._set_up(experiment)
        if taken:
            names = {"experiment": experiment_id, "state": experiment.state.name}
            logger.info("step taken", extra=names)
        return taken

    async def _set_up(self, experiment: Experiment) -> None:
        with self._timed(experiment.state):
            if experiment.state is ExperimentState.PENDING:
                await self._leave_pending(experiment)
            elif experiment.state is ExperimentState.CALIBRATING:
                await self._calibrate(experiment)
            else:
                await self._sample(experiment)
        self._follow_up(Change(experiment.id))

    async def wait_for(self, experiment_id: str, reason: str) -> None:
        """Record that the next step waits for a service."""
        await asyncio.to_thread(self._experiments.wait_for, experiment_id, reason)
        self._follow_up(Change(experiment_id))

    async def fail(self, experiment_id: str, reason: str, remedy: str = "") -> None:
        """End an experiment that cannot continue."""
        fail = self._experiments.fail
        self._follow_up(await asyncio.to_thread(fail, experiment_id, reason, remedy))

    async def _leave_pending(self, experiment: Experiment) -> None:
        examples = min(experiment.spec.calibration.examples, experiment.selection_rows)
        await asyncio.to_thread(self._experiments.leave_pending, experiment.id, examples)

    async def _calibrate(self, experiment: Experiment) -> None:
        spec = experiment.spec
        prompts = await asyncio.to_thread(self._calibration_prompts, experiment, spec)
        stream = self._calibrator.calibrate(spec, experiment.model_digest, prompts)
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

    def _calibration_prompts(self, experiment: Experiment, spec: ExperimentSpec) -> Prompts:
        """Return the prompts of the first selection rows."""
        task = experiment.task()
        text = self._results.artifact(experiment.selection_digest, ArtifactKind.ROWS)
        lines = text.split("\n")[: spec.calibration.examples]
        return render_prompts(task, [json.loads(line) for line in lines], "selection row")

    async def _sample(self, experiment: Experiment) -> None:
        spec, digest = experiment.spec, experiment.model_digest
        profile_json = await asyncio.to_thread(self._profile, experiment)
        scale_map = await self._sampler.scale_map(spec, digest, profile_json)
        base_map = await self._sampler.scale_map(spec, digest, None, _BASE)
        population: tuple[Descriptor, ...] = ()
        if spec.iterative is None:
            size = spec.population.size
            population = await self._sampler.descriptors(spec, scale_map.digest, size)
        base = base_descriptor(base_map.digest, spec.population.noise)
        maps = (scale_map, base_map)
        sampled = self._experiments.sampled
        change = await asyncio.to_thread(sampled, experiment.id, maps, base, population)
        if change is not None:
            self._follow_up(change)

    def _profile(self, experiment: Experiment) -> str | None:
        if experiment.profile_digest is None:
            return None
        return self._results.artifact(experiment.profile_digest, ArtifactKind.PROFILE)


class Conductor:
    """Drives every experiment until it reaches its selection."""

    def __init__(
        self,
        experiments: ExperimentStore,
        steps: SetupSteps,
        *,
        retry_seconds: float,
        outage_seconds: float = math.inf,
    ) -> None:
        self._experiments = experiments
        self._steps = steps
        self._retry_seconds = retry_seconds
        self._outage_seconds = outage_seconds
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()

    async def drive_all(self) -> None:
        """Start to drive every experiment in setup that is not driven yet."""
        for experiment_id in await asyncio.to_thread(self._experiments.driven):
            self.drive(experiment_id)

    def drive(self, experiment_id: str) -> None:
        """Drive one experiment in a background task.

        An experiment that is driven already takes another step after its present one, which may
        have read the database before the caller's change.
        """
        self._woken.add(experiment_id)
        task = self._driven.get(experiment_id)
        if task is None or task.done():
            task = asyncio.create_task(self._drive(experiment_id))
            self._driven[experiment_id] = task
            task.add_done_callback(partial(self._forget, experiment_id))

    def _forget(self, experiment_id: str, task: "asyncio.Task[None]") -> None:
        if self._driven.get(experiment_id) is task:
            del self._driven[experiment_id]
            self._woken.discard(experiment_id)

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
        """Drive an experiment. After an error here the next `drive_all` tries again."""
        names = {"experiment": experiment_id}
        try:
            await self._take_all_steps(experiment_id)
        except UnavailableError as error:
            logger.warning("postponed: %s", error, extra=names)
        except Exception:
            logger.exception("the failure of the experiment cannot be stored", extra=names)

    async def _take_all_steps(self, experiment_id: str) -> None:
        """Take all steps; an unexpected error ends the experiment."""
        names = {"experiment": experiment_id}
        try:
            while experiment_id in self._woken:
                self._woken.discard(experiment_id)
                while await self._take_step(experiment_id):
                    pass
        except UnavailableError:
            raise
        except Exception:
            error_id = uuid.uuid4().hex
            logger.exception("unexpected error", extra={**names, "error_id": error_id})
            await self._steps.fail(experiment_id, internal_error(error_id))

    async def _take_step(self, experiment_id: str) -> bool:
        """Take one step, with retries during an outage and a few after internal errors.

        A stopping service cancels its calls, which counts as an outage.
        """
        recorded, attempt, breakdowns, give_up = "", 0, 0, math.inf
        while True:
            try:
                return await self._steps.step(experiment_id)
            except ModnormError as error:
                breakdowns += _is_breakdown(error)
                give_up = min(give_up, time.monotonic() + self._outage_seconds)
                spent = breakdowns > BREAKDOWN_RETRIES or time.monotonic() >= give_up
                if spent or not _is_temporary(error):
                    await self._steps.fail(experiment_id, error.reason, error.remedy or "")
                    return False
                if error.message != recorded:
                    recorded = error.message
                    await self._steps.wait_for(experiment_id, error.message)
            await asyncio.sleep(self._pause(attempt))
            attempt += 1

    def _pause(self, attempt: int) -> float:
        """Return a growing pause in seconds, randomised so that experiments do not synchronise."""
        longest = min(FIRST_PAUSE * 2.0 ** min(attempt, 20), self._retry_seconds)
        return longest * random.uniform(0.5, 1.0)


def _is_temporary(error: ModnormError) -> bool:
    """Return whether the same step may succeed later."""
    return isinstance(error, UnavailableError | CancelledError) or _is_breakdown(error)


def _is_breakdown(error: ModnormError) -> bool:
    """Return whether an engine failed, or a service had an internal error such as an I/O error."""
    return type(error) is ModnormError or isinstance(error, EngineError)
