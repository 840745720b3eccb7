"""All that an ensemble's answers depend on: base, experts, scale map, task and cap."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator

from modnorm.errors import ConflictError, InvalidInputError, PreconditionError
from modnorm.files import canonical_json
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.spec import ExperimentSpec, ModelSpec
from modnorm.tasks import Row, Task, get_stored_task
from modnorm.tasks.columns import prompts_digest
from modnorm.tasks.task_errors import render_prompts

if TYPE_CHECKING:
    from modnorm.analysis.run import Run

_FIELD = "run"
StoredScaleMap = Annotated[
    ScaleMap,
    PlainValidator(lambda content: ScaleMap.from_json(canonical_json(content))),  # refuses NaN
    PlainSerializer(lambda scale_map: json.loads(scale_map.to_json())),
]
"""A scale map whose form in a manifest is its own JSON."""


@dataclass(frozen=True, slots=True)
class Expert:
    """One of the K best candidates."""

    index: Annotated[int, Field(ge=0)]
    """Position in the population."""
    descriptor: Descriptor
    """Resolved: it defines the weights bit for bit."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The task that prompts and votes belong to."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    """Of a manifest, which holds it too."""
    name: str
    scorer: str
    """Full name of the scorer, with its version."""
    declaration: str | None
    """Text of a declared task; None for a registered one."""
    max_tokens: Annotated[int, Field(ge=1, le=131_072)]
    """Completion cap."""

    def load(self) -> Task:
        """Return the task. It needs no sandbox: votes run no programs."""
        task = get_stored_task(self.name, declaration=self.declaration)
        try:
            return get_stored_task(self.name, scorer=self.scorer, declaration=self.declaration)
        except InvalidInputError as error:
            raise PreconditionError(
                f"the run was scored by {self.scorer}, which this version of modnorm lacks",
                field=_FIELD,
                remedy=f"run it again with {task.scorer} in task.scorer, or `modnorm rescore RUN` "
                "to judge its answers anew",
            ) from error


@dataclass(frozen=True, slots=True)
class EnsembleDefinition:
    """The K best of the first N candidates of a finished run."""

    model: ModelSpec
    """The base as the run's spec names it."""
    model_digest: str
    task: TaskIdentity
    scale_map: StoredScaleMap
    population: Annotated[int, Field(ge=1)]
    """N."""
    experts: Annotated[tuple[Expert, ...], Field(min_length=1)]
    """Best first."""

    @property
    def ensemble_size(self) -> int:
        """K."""
        return len(self.experts)

    @property
    def indices(self) -> tuple[int, ...]:
        """Candidate indices of the experts, best first."""
        return tuple(expert.index for expert in self.experts)


def define_ensemble(
    run: "Run", population: int | None = None, ensemble_size: int | None = None
) -> EnsembleDefinition:
    check_votes(run.spec)
    ensemble = run.ensemble(population, ensemble_size)
    scale_map = run.scale_map()
    if scale_map is None:
        raise PreconditionError(
            "the scale map of the run is missing",
            field=_FIELD,
            remedy="copy the whole directory of the run",
        )
    found, experts = dict(run.descriptors()), []
    for index in ensemble.experts:
        descriptor = found.get(index)
        if descriptor is not None and not scale_map.active:  # the base has nothing to resolve
            descriptor = descriptor.resolved(())
        if descriptor is None or descriptor.coefficients is None:
            raise PreconditionError(f"the descriptor of expert {index} is missing", field=_FIELD)
        experts.append(Expert(index, descriptor))
    task = task_identity(run.spec, run.provenance)
    rows = [json.loads(row) for row in run.rows("heldout")]
    require_equal_prompts(task.load(), rows, str(run.provenance.get("prompts_digest") or ""))
    return EnsembleDefinition(
        model=run.spec.model,
        model_digest=scale_map.model_digest,
        task=task,
        scale_map=scale_map,
        population=ensemble.population,
        experts=tuple(experts),
    )


def require_equal_prompts(task: Task, rows: Sequence[Row], recorded: str) -> None:
    """Refuse a task that makes other prompts than the run, whose experts were chosen by them."""
    if not rows or not recorded:
        return
    if prompts_digest(render_prompts(task, rows, "held-out row")) != recorded:
        raise ConflictError(
            f"task {task.name} makes other prompts here than in the run",
            field=_FIELD,
            remedy="use the version of modnorm, or of the task, that the run was made with",
        )


def check_votes(spec: ExperimentSpec) -> None:
    """Refuse a run that trained one model."""
    if spec.iterative is not None:
        raise InvalidInputError(
            f"{spec.method.name} trained one model, which has no ensemble",
            field=_FIELD,
            remedy="`modnorm export RUN --out DIR` writes the model",
        )


def task_identity(spec: ExperimentSpec, provenance: Mapping[str, object]) -> TaskIdentity:
    """Return the task of a run with the scorer and the completion cap that the run recorded."""
    scorer, cap = str(provenance["scorer"]), cast("int", provenance["max_tokens"])
    return TaskIdentity(spec.task.name, scorer, spec.task.declaration, cap)
