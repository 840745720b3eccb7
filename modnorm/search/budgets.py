"""The cost of a main run (paper, app. "Evaluation-Budget Accounting")."""

from dataclasses import dataclass

from typing_extensions import TypedDict


class CostEntry(TypedDict):
    """Evaluations by purpose; `Budget` explains them."""

    search: int
    development: int
    final: int
    total: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Model-prompt evaluations by purpose."""

    search: int = 0
    """Candidates on the selection rows, or training."""
    development: int = 0
    """Checkpoints on the development rows."""
    final: int = 0
    """Experts, or the one model that a method returns, on the held-out rows."""

    @property
    def total(self) -> int:
        """Evaluations of the whole main run."""
        return self.search + self.development + self.final

    def as_dict(self) -> CostEntry:
        """Return the counts and their total by name."""
        return CostEntry(
            search=self.search, development=self.development, final=self.final, total=self.total
        )


def ensemble_budget(
    population: int, ensemble_size: int, heldout_rows: int, *, selection_rows: int = 200
) -> Budget:
    """Return B_MN(N, K, S) = 200 N + K S (eq. "mn_total_eval_budget"), RandOpt's as well."""
    return Budget(search=selection_rows * population, final=ensemble_size * heldout_rows)


def iterative_budget(  # noqa: PLR0913 - keyword arguments; the budget depends on all
    heldout_rows: int,
    *,
    updates: int,
    candidates: int,
    selection_rows: int,
    development_interval: int,
    development_rows: int,
) -> Budget:
    """Return the main run of any method that updates one model.

    The paper's B_ES (eq. "es_total_eval_budget") has 100 updates of 30 candidates and no
    development rows. Its B_MeZO = B_ZO (eq. "zo_total_eval_budget") has 1,500 updates of two
    candidates, and 500 development rows at an interval of 100 updates.
    """
    checkpoints = -(-updates // development_interval) + 1
    return Budget(
        search=selection_rows * updates * candidates,
        development=checkpoints * development_rows,
        final=heldout_rows,
    )
