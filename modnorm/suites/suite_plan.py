"""Expected cost of a suite: experiments, candidates and model-prompt evaluations."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache

from modnorm.errors import ModnormError
from modnorm.search.budgets import Budget, ensemble_budget, iterative_budget, total_budget
from modnorm.spec import DataSpec, DistillationSpec, ExperimentSpec
from modnorm.suites.cells import Cell, ensembles_of
from modnorm.tasks.catalogue import find_split
from modnorm.tasks.sources import is_dataset, open_source

_SPLIT = "split:"
CountRows = Callable[[DataSpec], int | None]


@dataclass(frozen=True, slots=True)
class CellPlan:
    """Cost of one cell; None if only the hub knows the number of rows."""

    cell: str
    candidates: int
    selection_rows: int | None
    heldout_rows: int | None
    search: int | None
    """Evaluations of the candidates, or of training."""
    development: int | None
    """Evaluations of checkpoints on development rows."""
    monitoring: int | None
    """Evaluations of states that are only monitored, outside the budget."""
    final_at_most: int | None
    """Evaluations of the experts: fewer if ensembles share them."""
    base: int | None
    """Evaluations of the unperturbed model, outside the budget."""


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """Cost of several cells: the sums of their known counts."""

    experiments: int
    candidates: int
    search: int
    development: int
    monitoring: int
    final_at_most: int
    base: int
    uncounted: int
    """Cells whose number of rows is unknown here; no sum of evaluations includes them."""
    cells: tuple[CellPlan, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return asdict(self)


def plan_suite(cells: Sequence[Cell]) -> SuitePlan:
    """Count the cost of cells (`modnorm.search.budgets`)."""
    counted = cache(count_rows)
    plans = tuple(_plan(cell, counted) for cell in cells)
    sums = {
        field.name: sum(getattr(plan, field.name) or 0 for plan in plans)
        for field in fields(SuitePlan)
        if hasattr(CellPlan, field.name)
    }
    return SuitePlan(
        experiments=len(plans),
        uncounted=sum(plan.search is None for plan in plans),
        cells=plans,
        **sums,
    )


def _plan(cell: Cell, count_rows: CountRows) -> CellPlan:
    settings = cell.spec.distillation
    if settings is not None:
        search = cell.spec.model_copy(update={"distillation": None})
        plan = _plan(replace(cell, spec=search), count_rows)
        return _distilled(plan, cell.spec, settings, count_rows)
    spec, iterative = cell.spec, cell.spec.iterative
    selection, heldout = count_rows(spec.task.selection), count_rows(spec.task.heldout)
    development = count_rows(iterative.development) if iterative and iterative.development else 0
    budget = None
    if selection is not None and heldout is not None and development is not None:
        budget = _budget(spec, selection, heldout, development)
    return CellPlan(
        cell=cell.id,
        candidates=max(population for population, _ in ensembles_of(spec)),
        selection_rows=selection,
        heldout_rows=heldout,
        search=budget.search if budget else None,
        development=budget.development if budget else None,
        monitoring=None if heldout is None else _monitored_states(spec) * heldout,
        final_at_most=budget.final if budget else None,
        base=None if selection is None or heldout is None else selection + heldout,
    )


def _distilled(
    plan: CellPlan, spec: ExperimentSpec, settings: DistillationSpec, count_rows: CountRows
) -> CellPlan:
    """Return the cost of a distillation from that of its first search.

    The answers to training rows count as search.
    """
    rounds, harvest = settings.rounds, settings.harvest
    training, development = count_rows(settings.rows), count_rows(settings.development)
    experts = harvest.experts or max(spec.population.ensemble_sizes)
    counts = (plan.search, plan.final_at_most, plan.base, plan.heldout_rows, training, development)
    if None in counts:
        return replace(plan, search=None, development=None, final_at_most=None, base=None)
    search, final, base, heldout, training, development = (count or 0 for count in counts)
    answered = training * (experts * harvest.samples + harvest.only_wrong)
    return replace(
        plan,
        candidates=rounds * plan.candidates,
        search=rounds * (search + answered),
        development=(rounds + 1) * development,
        final_at_most=rounds * final + (rounds + 1) * heldout,
        base=rounds * base,
    )


def _monitored_states(spec: ExperimentSpec) -> int:
    """Count the states that answer the held-out rows, without the reported state."""
    iterative = spec.iterative
    if iterative is None:
        return 0
    reported = {iterative.updates} if iterative.report == "last" else set()
    return len(set(iterative.monitor) - reported)


def _budget(spec: ExperimentSpec, selection: int, heldout: int, development: int) -> Budget:
    """Count the search once, and the largest ensemble of each prefix."""
    if spec.iterative is not None:
        return iterative_budget(
            heldout,
            updates=spec.iterative.updates,
            candidates=spec.population.size,
            selection_rows=selection,
            development_interval=spec.iterative.evaluate_every,
            development_rows=development,
        )
    population, size = spec.population, max(spec.population.ensemble_sizes)
    largest = [
        ensemble_budget(prefix, size, heldout, selection_rows=selection)
        for prefix in population.reported_prefixes
    ]
    experts = min(total_budget(largest).final, population.size * heldout)
    return Budget(search=largest[-1].search, final=experts)


def count_rows(data: DataSpec) -> int | None:
    """Return the number of rows that a spec uses; None if only the hub knows it."""
    if data.limit is not None:
        return data.limit
    if data.source.startswith(_SPLIT):
        name = data.source.removeprefix(_SPLIT)
        split = find_split(name, field="task").splits[name.partition("/")[2]]
        return max(0, split.rows - data.offset)
    if is_dataset(data.source):
        return None
    try:
        rows = open_source(data, field="task", roots=None).rows
        return max(0, sum(1 for _ in rows) - data.offset)
    except ModnormError:
        return None
