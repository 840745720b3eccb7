"""The cost of a main run (paper, app. "Evaluation-Budget Accounting").

The unit is one model-prompt evaluation: one response of one model to one prompt, generated and
scored. A main run is search (or training), checkpoint selection on development rows, and the final
evaluation. Preparation and the choice of hyperparameters are counted separately. The defaults are
the paper's settings. `modnorm.analysis.evaluations` counts the cost of a finished run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from modnorm.errors import InvalidInputError

SELECTION_ROWS = 200
"""Selection or training prompts of every method of the paper."""
DEVELOPMENT_ROWS = 500


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

    def __add__(self, other: Self) -> "Budget":
        return Budget(
            self.search + other.search,
            self.development + other.development,
            self.final + other.final,
        )

    def as_dict(self) -> dict[str, int]:
        """Return the counts and their total by name."""
        return {
            "search": self.search,
            "development": self.development,
            "final": self.final,
            "total": self.total,
        }


def total_budget(budgets: Iterable[Budget]) -> Budget:
    """Return the sum of budgets."""
    return sum(budgets, Budget())


def ensemble_budget(
    population: int,
    ensemble_size: int,
    heldout_rows: int,
    *,
    selection_rows: int = SELECTION_ROWS,
) -> Budget:
    """Return B_MN(N, K, S) = 200 N + K S (eq. "mn_total_eval_budget"), RandOpt's as well.

    Args:
        population: N, the candidates scored.
        ensemble_size: K, the experts that vote.
        heldout_rows: S.
        selection_rows: Rows that score a candidate.
    """
    return Budget(search=selection_rows * population, final=ensemble_size * heldout_rows)


def evolution_budget(heldout_rows: int) -> Budget:
    """Return B_ES(S) = 200 * 3,000 + S of iterative ES (eq. "es_total_eval_budget")."""
    return iterative_budget(
        heldout_rows,
        updates=100,
        candidates=30,
        selection_rows=SELECTION_ROWS,
        development_interval=100,
        development_rows=0,
    )


def two_point_budget(heldout_rows: int, *, updates: int = 1_500) -> Budget:
    """Return B_MeZO(S) = B_ZO(S) = 2 * 1,500 * 200 + 16 * 500 + S (eq. "zo_total_eval_budget").

    Args:
        heldout_rows: S.
        updates: Two-sided updates, of two perturbed models each.
    """
    return iterative_budget(
        heldout_rows,
        updates=updates,
        candidates=2,
        selection_rows=SELECTION_ROWS,
        development_interval=100,
        development_rows=DEVELOPMENT_ROWS,
    )


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

    Args:
        heldout_rows: S.
        updates: Updates.
        candidates: Perturbed models per update.
        selection_rows: Rows that score each model.
        development_interval: Updates between development evaluations. The model before the first
            update and the last model are always evaluated.
        development_rows: Rows of each development evaluation; 0 if nothing is chosen on them.
    """
    checkpoints = -(-updates // development_interval) + 1
    return Budget(
        search=selection_rows * updates * candidates,
        development=checkpoints * development_rows,
        final=heldout_rows,
    )


def learning_rate_sweep() -> Budget:
    """Return the cost of choosing a learning rate of MeZO or ZO-Finetuner, outside the main run.

    Three rates of 500 updates: 600,000 training and 9,000 development evaluations.
    """
    return total_budget([two_point_budget(0, updates=500)] * 3)


def matched_population(
    reference: Budget,
    ensemble_size: int,
    heldout_rows: int,
    *,
    selection_rows: int = SELECTION_ROWS,
) -> int:
    """Return the largest N whose ensemble costs no more than another main run.

    Raises:
        InvalidInputError: the experts alone cost more.
    """
    left = reference.total - ensemble_size * heldout_rows
    if left < selection_rows:
        raise InvalidInputError(
            f"{ensemble_size} experts on {heldout_rows} rows leave nothing of "
            f"{reference.total} evaluations",
            field="population.ensemble_sizes",
            remedy="vote with fewer experts",
        )
    return left // selection_rows


def evaluation_reduction(reference: Budget, budget: Budget) -> float:
    """Return "Eval. red.": the reference's cost divided by the cost of a method.

    Args:
        reference: Iterative ES in the paper (eq. "iterative_eval_reduction").
        budget: The method's main run; not empty.
    """
    return reference.total / budget.total
