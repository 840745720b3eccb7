"""The choice of a radius on development rows (paper, app. B, "Scale selection")."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from modnorm.errors import ConflictError, InvalidInputError, ModnormError
from modnorm.radius.artifact import (
    GridDocument,
    GridRadius,
    GridSettings,
    GridTrial,
    MethodSubject,
    Subject,
    smallest,
)
from modnorm.spec import DataSpec, ExperimentSpec, parse_section, parse_spec, read_yaml
from modnorm.spec.experiment import suffixed
from modnorm.spec_checks import task_of
from modnorm.tasks.columns import prompt_digests, rows_digest
from modnorm.tasks.row_loading import load_data
from modnorm.tasks.task_errors import render_prompts, shared_prompts, shared_range
from modnorm.v1.experiment_pb2 import Provenance

_SHARED = (
    "model_digest",
    "profile_digest",
    "scale_map_digest",
    "selection_digest",
    "heldout_digest",
    "prompts_digest",
    "scorer",
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment of a grid search."""

    radius: float
    seed: int
    metric: float
    """Ensemble metric on the development rows, a fraction."""
    provenance: Provenance
    """Digests of the inputs of the experiment."""


def development_rows(text: str) -> DataSpec:
    """Read rows as they stand under `task.heldout` in a spec."""
    if not text.startswith("{"):
        return parse_section(DataSpec, {"source": text}, field="heldout")
    try:
        content = read_yaml(text)
    except ValueError as error:
        raise InvalidInputError(
            f"cannot read {text!r}: {error}",
            field="heldout",
            remedy="for instance {source: dev.jsonl, offset: 200, limit: 100}",
        ) from error
    return parse_section(DataSpec, content, field="heldout")


def trial_spec(
    spec: ExperimentSpec, *, radius: float, seed: int, heldout: DataSpec, ensemble_size: int
) -> ExperimentSpec:
    """Return the experiment of one trial: N alone, K alone, voted on the development rows."""
    if spec.iterative is not None:
        raise InvalidInputError(
            f"{spec.method.name} has no ensembles to compare",
            field="method.name",
            remedy="name a method that draws candidates; a suite varies settings of this one, "
            "as in examples/paper/hyperparameters-es.yaml",
        )
    data = spec.model_copy(update={"distillation": None}).model_dump(mode="json")
    return parse_spec(
        {
            **data,
            "name": suffixed(spec.name or spec.method.name, f"radius {radius:g} seed {seed}"),
            "task": {**data["task"], "heldout": heldout.model_dump(mode="json")},
            "method": {**data["method"], "radius": radius, "radius_source": None},
            "population": {
                **data["population"],
                "seed": seed,
                "prefixes": [spec.population.size],
                "ensemble_sizes": [ensemble_size],
            },
        }
    )


def grid_document(
    example: ExperimentSpec, trials: Sequence[Trial], prompts: Sequence[str] = ()
) -> GridDocument:
    """Return the content of a grid's artifact: best mean metric, ties to the smaller radius."""
    found = _common(trials)
    by_radius: dict[float, list[GridTrial]] = {}
    for each in sorted(trials, key=lambda one: one.radius):
        trial = GridTrial(seed=each.seed, metric=each.metric)
        by_radius.setdefault(each.radius, []).append(trial)
    radii = tuple(
        GridRadius(radius=radius, mean=fmean([one.metric for one in tried]), trials=tuple(tried))
        for radius, tried in by_radius.items()
    )
    population, task, method = example.population, example.task, example.method
    return GridDocument(
        model=Subject(
            name=example.model.name, revision=example.model.revision, digest=found.model_digest
        ),
        task=task.name,
        method=MethodSubject(
            name=method.name,
            masses=method.masses,
            profile=found.profile_digest or None,
            scale_map=found.scale_map_digest,
            rank=method.rank,
            target_modules=method.target_modules,
        ),
        radius=smallest([(one.radius, -one.mean) for one in radii]),
        settings=GridSettings(
            population=population.size,
            ensemble_size=population.ensemble_sizes[0],
            seeds=tuple(one.seed for one in radii[0].trials),
            pool=population.pool,
            noise=population.noise,
            scorer=found.scorer,
            max_tokens=task.max_tokens,
            engine=example.engine,
            selection=task.selection,
            selection_digest=found.selection_digest,
            development=task.heldout,
            development_digest=found.heldout_digest,
            development_prompts=tuple(prompts),
        ),
        radii=radii,
    )


def _common(trials: Sequence[Trial]) -> Provenance:
    """Return the common inputs of all trials; only the digest of the spec may differ."""
    first = trials[0].provenance
    for trial in trials:
        for field in _SHARED:
            there, here = getattr(first, field), getattr(trial.provenance, field)
            if there != here:
                raise ConflictError(
                    f"the trials cannot be compared: {field} is {there[:16]} at radius "
                    f"{trials[0].radius:g}, {here[:16]} at radius {trial.radius:g}",
                    field=field.removesuffix("_digest"),
                    remedy="files of the spec changed between them; run the grid again in another "
                    "directory",
                )
    return first


def check_development_rows(
    spec: ExperimentSpec, rows: DataSpec, *, folders: Sequence[Path] | None = None
) -> None:
    """Refuse development rows of which one is among the spec's held-out rows.

    Rows are the same where their prompts are. Rows that cannot be loaded here are compared by
    name, offset and limit.
    """
    task, tested = task_of(spec), spec.task.heldout
    try:
        development = load_data(task, rows, field="heldout", folders=folders)
        heldout = load_data(task, tested, field="task.heldout", folders=folders)
    except ModnormError:
        found = shared_range(rows, tested)
        if found is None:
            return
        start, stop = found
        count = "all" if stop is None else stop - start
        shared = (
            f"development rows are rows of task.heldout: {count} of {rows.source} from row "
            f"{start} on"
        )
    else:
        pairs = shared_prompts(task, development.rows, heldout.rows)
        if not pairs:
            return
        index, other = pairs[0]
        shared = (
            f"{len(pairs)} of {len(development.rows)} development rows have the prompts of rows "
            f"of task.heldout: first row {index} ({rows.source}, {development.places[index]}), "
            f"that of row {other} ({tested.source}, {heldout.places[other]})"
        )
    raise InvalidInputError(
        f"{shared}; the radius chosen here is tested on those",
        field="heldout",
        remedy="name other rows with --heldout, or another offset or limit",
    )


def development_prompts(
    spec: ExperimentSpec, digest: str, *, folders: Sequence[Path] | None = None
) -> tuple[str, ...]:
    """Return the digests of the prompts of a trial's held-out rows, which are development rows."""
    try:
        task = task_of(spec)
        rows = load_data(task, spec.task.heldout, field="heldout", folders=folders).rows
        if rows_digest(rows) != digest:
            return ()
        return prompt_digests(render_prompts(task, rows, "row"))
    except ModnormError:
        return ()
