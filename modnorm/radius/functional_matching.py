"""Functional matching: the radius that changes a model as much as isotropic noise (app. B)."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

from modnorm.analysis.uncertainty import RESAMPLES, SEED
from modnorm.checkpoint.pretrained import best_device
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.files import json_digest, write_fault
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.sampling import population_seeds
from modnorm.radius.artifact import (
    CandidateDisplacement,
    Condition,
    MatchedCondition,
    MatchingDocument,
    MatchingSettings,
    MethodSubject,
    Reference,
    Subject,
    check_count,
    objective,
    smallest,
)
from modnorm.radius.displacement import (
    DisplacementMeter,
    check_prompts,
    compared_positions,
    environment,
)
from modnorm.spec import Masses, TargetModules

Key = tuple[str, float, int]
"""Digest of the scale map, radius, seed."""


class MeasurementJournal:
    """The measurements of one file, one on a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._measurements: dict[Key, CandidateDisplacement] = {}
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):  # a write was interrupted
            os.truncate(path, len(whole))
        for line in whole.splitlines():
            entry = json.loads(line)
            scale_map, radius = entry.pop("scale_map"), entry.pop("radius")
            measured = CandidateDisplacement.model_validate(entry)
            self._measurements[scale_map, radius, measured.seed] = measured

    def __contains__(self, key: Key) -> bool:
        return key in self._measurements

    def __getitem__(self, key: Key) -> CandidateDisplacement:
        return self._measurements[key]

    def add(self, key: Key, measured: CandidateDisplacement) -> None:
        """Store a measurement; it is on disk when this returns."""
        scale_map, radius, _ = key
        content = measured.model_dump(mode="json")
        text = json.dumps({"scale_map": scale_map, "radius": radius, **content}, sort_keys=True)
        try:
            with self._path.open("ab") as file:
                file.write(f"{text}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise write_fault(self._path, error) from error
        self._measurements[key] = measured


VERSION = "1"
"""Increased when equal inputs begin to give other measurements."""


@dataclass(frozen=True)
class MatchingPlan:
    """A method and a reference to match it to, on some prompts."""

    checkpoint: Checkpoint
    task: str
    """Name of the prompts' task."""
    prompts: list[list[int]]
    """Token ids, whole prompts."""
    scale_map: ScaleMap
    """Scale map of the method whose radius is to be chosen."""
    reference: ScaleMap
    """Scale map of isotropic noise."""
    masses: Masses
    profile: str | None
    """Digest of the scale map's profile."""
    sigma: float
    radii: tuple[float, ...]
    """Ascending."""
    target_modules: TargetModules = "all"
    """The matrices that noise of a rank perturbs."""
    settings: MatchingSettings = field(default_factory=MatchingSettings)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the candidates, the first of the pool; all conditions use them."""
        pool = population_seeds(self.settings.seed, self.settings.pool_size, self.settings.pool)
        return pool[: self.settings.candidates]

    @cached_property
    def prompts_sha256(self) -> str:
        """SHA-256 over the token ids."""
        return json_digest(self.prompts)

    @property
    def conditions(self) -> tuple[tuple[ScaleMap, float], ...]:
        """The reference, then the radii ascending."""
        radii = ((self.scale_map, radius) for radius in self.radii)
        return ((self.reference, self.sigma), *radii)

    def inputs(self, device: torch.device) -> Mapping[str, object]:
        """Return all inputs of a measurement besides scale map, radius and seed."""
        return {
            "version": VERSION,
            "model": self.checkpoint.digest,
            "prompts": self.prompts_sha256,
            "noise": self.settings.noise,
            "batch": self.settings.batch,
            "environment": environment(self.checkpoint, device),
        }

    def check(self) -> None:
        """Refuse a plan that cannot be measured, before a model is loaded."""
        check_count(len(self.prompts), self.settings.prompts)
        check_prompts(self.checkpoint, self.prompts, self.settings.max_prompt_tokens)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement, made now or read from the journal."""

    done: int
    total: int
    method: str
    radius: float


def match(
    plan: MatchingPlan, folder: Path, *, on_step: Callable[[Measurement], object] = lambda _: None
) -> MatchingDocument:
    """Measure all candidates that were not measured in this folder, and choose a radius."""
    plan.check()
    device = best_device()
    inputs = json_digest(plan.inputs(device))
    measurements = MeasurementJournal(folder / f"measurements-{inputs[:16]}.jsonl")
    _measure(plan, measurements, device, on_step)
    return _document(plan, measurements, environment(plan.checkpoint, device))


def _measure(
    plan: MatchingPlan,
    measurements: MeasurementJournal,
    device: torch.device,
    on_step: Callable[[Measurement], object],
) -> None:
    """Measure the missing candidates in order; load the model only if one is missing."""
    wanted = [
        (scale_map, radius, seed) for scale_map, radius in plan.conditions for seed in plan.seeds
    ]
    meter: DisplacementMeter | None = None
    for done, (scale_map, radius, seed) in enumerate(wanted, 1):
        key = scale_map.digest, radius, seed
        if key not in measurements:
            meter = meter or DisplacementMeter(
                plan.checkpoint, plan.prompts, batch_size=plan.settings.batch, device=device
            )
            descriptor = Descriptor(
                noise=plan.settings.noise,
                seed=seed,
                method=scale_map.method,
                radius=radius,
                scale_map=scale_map.digest,
            )
            displacement = meter.displacement(descriptor, scale_map)
            measurements.add(key, CandidateDisplacement(seed=seed, **asdict(displacement)))
        on_step(Measurement(done, len(wanted), scale_map.method, radius))


def _document(
    plan: MatchingPlan, measurements: MeasurementJournal, recorded: dict[str, str]
) -> MatchingDocument:
    """Return the document of a complete journal, with the environment for the record."""
    iso = _condition(plan, measurements, plan.reference, plan.sigma)
    reference = Reference(**dict(iso), scale_map=plan.reference.digest)
    if not (reference.kl and reference.hidden):
        raise InvalidInputError(
            f"isotropic noise of {plan.sigma:g} changes nothing: rounding removes all of it",
            field="sigma",
            remedy="use a larger sigma",
        )
    conditions = [_condition(plan, measurements, plan.scale_map, radius) for radius in plan.radii]
    radii = tuple(
        MatchedCondition(**dict(one), objective=objective(one, reference)) for one in conditions
    )
    return MatchingDocument(
        model=Subject(
            name=plan.checkpoint.name,
            revision=plan.checkpoint.revision,
            digest=plan.checkpoint.digest,
        ),
        task=plan.task,
        method=MethodSubject(
            name=plan.scale_map.method,
            masses=plan.masses,
            profile=plan.profile,
            scale_map=plan.scale_map.digest,
            rank=plan.scale_map.rank,
            target_modules=plan.target_modules,
        ),
        radius=smallest([(one.radius, one.objective) for one in radii]),
        settings=plan.settings,
        prompts_sha256=plan.prompts_sha256,
        positions=compared_positions(plan.prompts),
        environment=recorded,
        reference=reference,
        radii=radii,
    )


def _condition(
    plan: MatchingPlan, measurements: MeasurementJournal, scale_map: ScaleMap, radius: float
) -> Condition:
    """Return a condition with the means over its candidates."""
    candidates = tuple(measurements[scale_map.digest, radius, seed] for seed in plan.seeds)
    return Condition(
        radius=radius,
        kl=fmean([one.kl for one in candidates]),
        hidden=fmean([one.hidden for one in candidates]),
        hidden_rms=fmean([one.hidden_rms for one in candidates]),
        candidates=candidates,
    )


def choice_shares(document: MatchingDocument) -> list[float]:
    """Return for each radius the share of resamples of the candidates that choose it.

    All conditions resample the same candidates: they have the same seeds.
    """
    conditions = (document.reference, *document.radii)
    figures = np.array([[(c.kl, c.hidden) for c in each.candidates] for each in conditions])
    count = figures.shape[1]
    drawn = np.random.default_rng(SEED).integers(count, size=(RESAMPLES, count))
    means = figures[:, drawn].mean(axis=2)  # by condition, resample and figure
    with np.errstate(divide="ignore", invalid="ignore"):
        objectives = (np.log(means[1:] / means[0]) ** 2).sum(axis=-1)
    chosen = np.where(np.isnan(objectives), np.inf, objectives).argmin(axis=0)
    return [float(np.mean(chosen == index)) for index in range(len(document.radii))]
