"""The steps of one experiment from its creation to the selection.

Each step is a compare-and-set on the stored state, so that a restart or a second aggregator
repeats at most a call whose answer is the same.
"""

import asyncio
import json

from modnorm.errors import UnavailableError
from modnorm.perturbation.descriptor import Descriptor, base_descriptor
from modnorm.spec import ExperimentSpec, MethodSpec
from modnorm.tasks.faults import render
from services.aggregator.background import Changes
from services.aggregator.lifecycle import spec_of, task_of
from services.aggregator.metrics import AggregatorMetrics
from services.aggregator.states import CONDUCTED, ArtifactKind, ExperimentState
from services.aggregator.stores.experiments import ExperimentStore, StoredText
from services.aggregator.stores.jobs import Change, JobStore
from services.aggregator.stores.results import ResultStore
from services.aggregator.tables import Experiment
from services.aggregator.upstream import Calibrator, Prompts, Sampler

_BASE = MethodSpec(name="base")


class Journey:
    """The steps of one experiment up to its selection.

    Args:
        experiments: The experiments.
        jobs: The jobs.
        results: The artifacts.
        sampler: Makes scale maps and descriptors.
        calibrator: Makes profiles.
        changes: What to do about what a step changed.
        metrics: What is counted.
    """

    def __init__(  # noqa: PLR0913 - wiring: these are all that a step may use
        self,
        *,
        experiments: ExperimentStore,
        jobs: JobStore,
        results: ResultStore,
        sampler: Sampler,
        calibrator: Calibrator,
        changes: Changes,
        metrics: AggregatorMetrics,
    ) -> None:
        self._experiments = experiments
        self._jobs = jobs
        self._results = results
        self._sampler = sampler
        self._calibrator = calibrator
        self._changes = changes
        self._metrics = metrics

    async def step(self, experiment_id: str) -> bool:
        """Take the next step of an experiment; False when it is not the conductor's any more.

        Raises:
            UnavailableError: a service is down; the step can be taken again.
            ModnormError: the experiment cannot go on.
        """
        record = await asyncio.to_thread(self._experiments.get, experiment_id)
        experiment = record.experiment
        if experiment.state not in CONDUCTED:
            return False
        with self._metrics.step(experiment.state):
            if experiment.state is ExperimentState.PENDING:
                await self._leave_pending(experiment)
            elif experiment.state is ExperimentState.CALIBRATING:
                await self._calibrate(experiment)
            else:
                await self._sample(experiment)
        self._changes.follow_up(Change(experiment_id))
        return True

    async def note(self, experiment_id: str, message: str) -> None:
        """Tell watchers something."""
        await asyncio.to_thread(self._experiments.note, experiment_id, message)
        self._changes.follow_up(Change(experiment_id))

    async def fail(self, experiment_id: str, reason: str) -> None:
        """End an experiment that cannot go on."""
        await asyncio.to_thread(self._experiments.fail, experiment_id, reason)
        self._changes.follow_up(Change(experiment_id))

    async def _leave_pending(self, experiment: Experiment) -> None:
        examples = min(spec_of(experiment).calibration.examples, experiment.selection_rows)
        await asyncio.to_thread(self._experiments.leave_pending, experiment.id, examples)

    async def _calibrate(self, experiment: Experiment) -> None:
        spec = spec_of(experiment)
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
            self._changes.follow_up(Change(experiment.id))
        raise UnavailableError("the calibrator ended without a profile")

    def _calibration_prompts(self, experiment: Experiment, spec: ExperimentSpec) -> Prompts:
        """Return the messages of the first selection rows."""
        task = task_of(experiment)
        text = self._results.artifact(experiment.selection_digest, ArtifactKind.ROWS)
        lines = text.split("\n")[: spec.calibration.examples]
        return render(task, [json.loads(line) for line in lines], "selection row")

    async def _sample(self, experiment: Experiment) -> None:
        spec, digest = spec_of(experiment), experiment.model_digest
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
        if await asyncio.to_thread(sampled, experiment.id, maps, base, population):
            pending = await asyncio.to_thread(self._jobs.pending, experiment.id)
            self._changes.follow_up(Change(experiment.id, pending))

    def _profile(self, experiment: Experiment) -> str | None:
        if experiment.profile_digest is None:
            return None
        return self._results.artifact(experiment.profile_digest, ArtifactKind.PROFILE)
