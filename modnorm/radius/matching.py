"""Functional matching: the radius that moves a model as isotropic noise does (app. B)."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path

import torch

from modnorm.checkpoint.pretrained import best_device
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.noise import get_scheme
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.sampling import population_seeds
from modnorm.radius.bench import Bench, environment
from modnorm.radius.digests import json_digest
from modnorm.radius.journal import Journal
from modnorm.radius.objective import mean, smallest
from modnorm.radius.probe import check_prompts, compared_positions
from modnorm.radius.scales import check_count, check_scales
from modnorm.radius.schema import (
    Candidate,
    Condition,
    MatchedCondition,
    MatchingDocument,
    MatchingSettings,
    MethodSubject,
    Reference,
    Subject,
    objective,
)
from modnorm.spec import Masses

VERSION = "1"
"""Changes whenever the same inputs come to give other measurements."""
SIGMA = 0.0005
"""Standard deviation of the paper's isotropic reference."""
RADII = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
"""The paper's grid for Llama, Gemma and OLMo."""


@dataclass(frozen=True)
class MatchingPlan:
    """What is matched to what, on which prompts."""

    checkpoint: Checkpoint
    task: str
    """Name of the task that the prompts are of."""
    prompts: list[list[int]]
    """Token ids, whole prompts."""
    scale_map: ScaleMap
    """Of the method whose radius is wanted."""
    reference: ScaleMap
    """Of isotropic noise."""
    masses: Masses
    profile: str | None
    """Digest of the profile that the scale map was made with."""
    sigma: float = SIGMA
    radii: tuple[float, ...] = RADII
    """Ascending."""
    settings: MatchingSettings = field(default_factory=MatchingSettings)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the candidates: the first of the pool, the same for every condition."""
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
        """Return all that a measurement depends on besides scale map, radius and seed."""
        return {
            "version": VERSION,
            "model": self.checkpoint.digest,
            "prompts": self.prompts_sha256,
            "noise": self.settings.noise,
            "batch": self.settings.batch,
            "environment": environment(self.checkpoint, device),
        }

    def check(self) -> None:
        """Refuse what cannot be measured, before a model is loaded.

        Raises:
            InvalidInputError: names the field at fault.
        """
        check_scales(self.radii, self.sigma)
        get_scheme(self.settings.noise)
        check_count(len(self.prompts), self.settings.prompts)
        check_prompts(self.checkpoint, self.prompts, self.settings.max_prompt_tokens)


@dataclass(frozen=True, slots=True)
class Step:
    """A measurement that is there, made now or before."""

    done: int
    total: int
    method: str
    radius: float
    candidate: Candidate


def match(
    plan: MatchingPlan,
    journal: Path,
    *,
    on_step: Callable[[Step], None] | None = None,
    device: torch.device | None = None,
) -> MatchingDocument:
    """Measure every candidate of every condition that is not measured yet, and choose.

    Broken off at any point and called again with the same journal, it goes on, and gives the same
    document as if nothing had happened.

    Args:
        plan: What is measured.
        journal: File of the measurements.
        on_step: Called after each measurement, in order; what it raises ends the matching.
        device: Where to compute; the GPU when there is one.

    Raises:
        InvalidInputError: the plan cannot be measured, or its scales move nothing.
        ConflictError: the journal is of another model, of other prompts or of another machine.
        EvaluationError: a measurement failed.
    """
    plan.check()
    where = device or best_device()
    kept = Journal(journal, plan.inputs(where))
    _measure(plan, kept, where, on_step or _go_on)
    return _conclude(plan, kept, environment(plan.checkpoint, where))


def _go_on(step: Step) -> None:
    """Show nothing."""


def _measure(
    plan: MatchingPlan, kept: Journal, device: torch.device, show: Callable[[Step], None]
) -> None:
    """Measure what is missing, in order; the model is loaded only if something is."""
    wanted = [
        (scale_map, radius, seed) for scale_map, radius in plan.conditions for seed in plan.seeds
    ]
    make_bench = partial(
        Bench, plan.checkpoint, plan.prompts, batch_size=plan.settings.batch, device=device
    )
    bench: Bench | None = None
    for done, (scale_map, radius, seed) in enumerate(wanted, 1):
        key = scale_map.digest, radius, seed
        if key not in kept:
            bench = bench or make_bench()
            descriptor = Descriptor(
                noise=plan.settings.noise,
                seed=seed,
                method=scale_map.method,
                radius=radius,
                scale_map=scale_map.digest,
            )
            found = bench.displacement(descriptor, scale_map)
            kept.add(key, Candidate(seed=seed, **asdict(found)))
        show(Step(done, len(wanted), scale_map.method, radius, kept[key]))


def _conclude(plan: MatchingPlan, kept: Journal, where: dict[str, str]) -> MatchingDocument:
    iso = _condition(plan, kept, plan.reference, plan.sigma)
    reference = Reference(**dict(iso), scale_map=plan.reference.digest)
    if not (reference.kl and reference.hidden):
        raise InvalidInputError(
            f"isotropic noise of {plan.sigma:g} moves nothing: rounding leaves none of it",
            field="sigma",
            remedy="give a larger sigma",
        )
    radii = tuple(_matched(plan, kept, radius, reference) for radius in plan.radii)
    scores = [
        (one.radius, float("inf") if one.objective is None else one.objective) for one in radii
    ]
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
        ),
        radius=smallest(scores),
        settings=plan.settings,
        prompts_sha256=plan.prompts_sha256,
        positions=compared_positions(plan.prompts),
        environment=where,
        reference=reference,
        radii=radii,
    )


def _matched(
    plan: MatchingPlan, kept: Journal, radius: float, reference: Reference
) -> MatchedCondition:
    found = _condition(plan, kept, plan.scale_map, radius)
    return MatchedCondition(**dict(found), objective=objective(found, reference))


def _condition(plan: MatchingPlan, kept: Journal, scale_map: ScaleMap, radius: float) -> Condition:
    """Return a condition with the means over its candidates."""
    candidates = tuple(kept[scale_map.digest, radius, seed] for seed in plan.seeds)
    return Condition(
        radius=radius,
        kl=mean([one.kl for one in candidates]),
        hidden=mean([one.hidden for one in candidates]),
        hidden_rms=mean([one.hidden_rms for one in candidates]),
        candidates=candidates,
    )
