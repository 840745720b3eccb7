"""The work of `modnorm candidates`: find the candidates of a run and print them by rank."""

from collections.abc import Iterable
from math import inf

from rich.table import Table

from modnorm.analysis.candidate_records import CandidateRecord, candidate_records
from modnorm.analysis.run_data import BaseRow
from modnorm.cli.console import percent, table
from modnorm.cli.records_output import Listed, print_records, show_table
from modnorm.cli.runs import opened_run
from modnorm.errors import NotFoundError
from modnorm.hints import one_of

_HEADINGS = (
    "rank",
    "candidate",
    "seed",
    "state",
    "reward",
    "gain",
    "held-out",
    "selection tokens",
    "give a vote",
    "cut off",
)
STATES = ("scored", "stopped", "failed")


def print_candidates(asked: Listed, state: str | None) -> None:
    """Print the candidates of a run, best first; those without a rank last.

    Raises:
        NotFoundError: there is no such state, or no candidate is in it.
    """
    if state is not None and state not in STATES:
        raise NotFoundError(
            f"there is no state {state!r}", field="state", remedy=one_of(state, STATES)
        )
    with opened_run(asked.run, asked.server) as run:
        records = candidate_records(run.candidates, run.base)
        found = [each for each in records if state in {None, each.state}]
        if not found:
            raise NotFoundError(f"no candidate is {state}", field="state", remedy="omit --state")
        found.sort(key=lambda each: (each.rank or inf, each.index))
        if not print_records(iter(found), CandidateRecord, asked.output):
            shown = found[: asked.limit]
            show_table(_table(shown, run.base), len(found) - len(shown))


def _table(records: Iterable[CandidateRecord], base: BaseRow) -> Table:
    first = (
        "-",
        "base",
        "-",
        "-",
        _number(base.selection_reward),
        "-",
        percent(base.heldout_metric),
        *("-",) * 3,
    )
    rows = (
        (
            "-" if each.rank is None else str(each.rank),
            str(each.index),
            str(each.seed),
            each.state,
            _reward(each),
            "-" if each.gain is None else f"{each.gain:+.4f}",
            percent(each.heldout_metric),
            str(each.selection_tokens),
            *(
                percent(count / each.selection_answers if each.selection_answers else None)
                for count in (each.selection_valid, each.selection_truncated)
            ),
        )
        for each in records
    )
    return table(_HEADINGS, (first, *rows), {"state"})


def _reward(record: CandidateRecord) -> str:
    """Return the selection reward; of a stopped candidate the interval that it lies in."""
    if record.reward_lower is None:
        return _number(record.selection_reward)
    return f"{_number(record.reward_lower)} to {_number(record.reward_upper)}"


def _number(reward: float | None) -> str:
    return "-" if reward is None else f"{reward:.4f}"
