"""What a suite will cost, before anything runs."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from modnorm.errors import ModnormError
from modnorm.search.budgets import Budget, ensemble_budget, iterative_budget, total_budget
from modnorm.spec import DataSpec, ExperimentSpec
from modnorm.suites.cells import Cell, ensembles_of
from modnorm.tasks.catalogue import find_split
from modnorm.tasks.sources import open_source

_SPLIT, _HUB_FREE = "split:", ("bundled:", ".", "/", "~")


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell."""

    cell: str
    candidates: int
    selection_rows: int | None
    """None where only the data set itself could tell."""
    heldout_rows: int | None
    search: int | None
    """Model-prompt evaluations of the candidates, or of training."""
    development: int | None
    """The same of checkpoints on development rows."""
    monitoring: int | None
    """The same of states that are only watched, outside the budget."""
    final_at_most: int | None
    """The same of the experts: fewer where several ensembles share them."""
    base: int | None
    """The same of the unperturbed model, outside the budget."""


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """All cells, or those that are left."""

    experiments: int
    candidates: int
    search: int
    development: int
    monitoring: int
    final_at_most: int
    base: int
    uncounted: int
    """Cells whose rows are not known on this machine; they are in no sum of evaluations."""
    cells: tuple[CellPlan, ...]

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON values."""
        return asdict(self)


def plan_suite(cells: Sequence[Cell]) -> SuitePlan:
    """Count what cells will cost (`modnorm.search.budgets`)."""
    rows = _Rows()
    plans = tuple(_plan(cell, rows) for cell in cells)
    return SuitePlan(
        experiments=len(plans),
        candidates=sum(plan.candidates for plan in plans),
        search=_sum(plan.search for plan in plans),
        development=_sum(plan.development for plan in plans),
        monitoring=_sum(plan.monitoring for plan in plans),
        final_at_most=_sum(plan.final_at_most for plan in plans),
        base=_sum(plan.base for plan in plans),
        uncounted=sum(plan.search is None for plan in plans),
        cells=plans,
    )


def _plan(cell: Cell, rows: "_Rows") -> CellPlan:
    spec = cell.spec
    selection = rows.count(spec.task.selection)
    heldout = rows.count(spec.task.heldout)
    iterative = spec.iterative
    development = rows.count(iterative.development) if iterative and iterative.development else 0
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
        monitoring=None if heldout is None else _watched(spec) * heldout,
        final_at_most=budget.final if budget else None,
        base=None if selection is None or heldout is None else selection + heldout,
    )


def _watched(spec: ExperimentSpec) -> int:
    """Count the states that answer the held-out rows besides the reported one."""
    iterative = spec.iterative
    if iterative is None:
        return 0
    ends = {iterative.updates} if iterative.report == "last" else set()
    return len(set(iterative.monitor) - ends)


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


class _Rows:
    """How many rows sources have; each is looked at once."""

    def __init__(self) -> None:
        self._known: dict[DataSpec, int | None] = {}

    def count(self, data: DataSpec) -> int | None:
        """Return how many rows a spec takes; None where only the hub could tell."""
        if data.limit is not None:
            return data.limit
        if data not in self._known:
            self._known[data] = _count(data)
        return self._known[data]


def _count(data: DataSpec) -> int | None:
    if data.source.startswith(_SPLIT):
        name = data.source.removeprefix(_SPLIT)
        split = find_split(name, field="task").splits[name.partition("/")[2]]
        return max(0, split.rows - data.offset)
    if not data.source.startswith(_HUB_FREE):
        return None
    try:
        rows = open_source(data, field="task", roots=None).rows
        return max(0, sum(1 for _ in rows) - data.offset)
    except ModnormError:
        return None


def _sum(counts: Iterable[int | None]) -> int:
    return sum(count for count in counts if count is not None)
