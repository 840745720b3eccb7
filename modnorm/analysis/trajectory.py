"""An iterative run: its evaluated states and its cost."""

from collections.abc import Callable, Mapping
from dataclasses import asdict

from typing_extensions import TypedDict

from modnorm.analysis.run_data import RunData, StateRow
from modnorm.analysis.uncertainty import ConfidenceInterval
from modnorm.baselines.ledger import Ledger, Purpose


class StateEntry(TypedDict):
    """An evaluated state: a `StateRow` without its counts."""

    updates: int
    lineage: str
    mean_reward: float | None
    development_metric: float | None
    development_reward: float | None
    heldout_metric: float | None
    heldout_interval: ConfidenceInterval | None


class IterativeEntry(TypedDict):
    """The entry of an iterative run in `results.json`."""

    states: list[StateEntry]
    """States that were evaluated, in order."""
    reported: int
    """Updates of the one that the held-out figures are of."""
    ledger: dict[str, dict[str, int]]
    """By purpose: models attempted and completed, model-prompt pairs, tokens."""
    main_run: int
    """Model-prompt pairs of search, development and final evaluation together."""


def iterative_entry(
    run: RunData, heldout_interval: Callable[[float | None], ConfidenceInterval | None]
) -> IterativeEntry | None:
    """Return the entry of an iterative run; None for another run.

    `heldout_interval` returns the interval of a state's held-out metric.
    """
    if not run.states:
        return None
    ledger = ledger_of(run)
    return IterativeEntry(
        states=[
            StateEntry(
                updates=state.updates,
                lineage=state.lineage,
                mean_reward=state.mean_reward,
                development_metric=state.development_metric,
                development_reward=state.development_reward,
                heldout_metric=state.heldout_metric,
                heldout_interval=heldout_interval(state.heldout_metric),
            )
            for state in run.states
        ],
        reported=next(state.updates for state in run.states if state.reported),
        ledger={str(purpose): asdict(ledger[purpose]) for purpose in Purpose},
        main_run=ledger.main_run,
    )


def ledger_of(run: RunData) -> Ledger:
    """Count the cost of an iterative run from its stored answers.

    The unperturbed model on the selection rows is outside; its held-out and development answers
    are those of the first state.
    """
    ledger = Ledger()
    for candidate in run.candidates:
        ledger = ledger.charged(
            Purpose.SEARCH,
            attempts=candidate.attempts,
            pairs=candidate.selection_answers,
            tokens=candidate.selection_tokens,
        )
    for state in run.states:
        for purpose, cost in _costs(state).items():
            ledger = ledger.charged(purpose, **cost)
    return ledger


def _costs(state: StateRow) -> Mapping[Purpose, Mapping[str, int]]:
    """Return the costs of a state by purpose: choice, final evaluation or monitoring."""
    costs: dict[Purpose, Mapping[str, int]] = {}
    if state.development_answers:
        costs[Purpose.DEVELOPMENT] = {
            "attempts": state.development_attempts,
            "pairs": state.development_answers,
            "tokens": state.development_tokens,
        }
    if state.heldout_answers:
        costs[Purpose.FINAL if state.reported else Purpose.MONITORING] = {
            "attempts": state.heldout_attempts,
            "pairs": state.heldout_answers,
            "tokens": state.heldout_tokens,
        }
    return costs
