"""The counted evaluations of a run (paper, app. "Evaluation-Budget Accounting")."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Purpose(StrEnum):
    """Purpose of an evaluation."""

    SEARCH = "search"
    """Decides an update; part of the main-run budget."""
    DEVELOPMENT = "development"
    """Chooses the reported state; part of the main-run budget."""
    MONITORING = "monitoring"
    """Chooses nothing; not part of the budget."""
    FINAL = "final"
    """The reported state on the held-out rows; part of the main-run budget."""


_MAIN_RUN = (Purpose.SEARCH, Purpose.DEVELOPMENT, Purpose.FINAL)


@dataclass(frozen=True, slots=True)
class Account:
    """The evaluations of one purpose."""

    attempted: int = 0
    completed: int = 0
    pairs: int = 0
    """Model-prompt pairs that were generated and scored."""
    tokens: int = 0

    def plus(self, attempts: int, pairs: int, tokens: int) -> "Account":
        """Return the account with one more model; a failed model has no pairs."""
        return Account(
            self.attempted + attempts,
            self.completed + (pairs > 0),
            self.pairs + pairs,
            self.tokens + tokens,
        )


@dataclass(frozen=True)
class Ledger:
    """The accounts of a run."""

    accounts: Mapping[Purpose, Account] = field(default_factory=dict)

    def __getitem__(self, purpose: Purpose) -> Account:
        return self.accounts.get(purpose, Account())

    def charged(self, purpose: Purpose, *, attempts: int, pairs: int, tokens: int) -> "Ledger":
        """Return the ledger with one more evaluated model."""
        account = self[purpose].plus(attempts, pairs, tokens)
        return replace(self, accounts={**self.accounts, purpose: account})

    @property
    def main_run(self) -> int:
        """Model-prompt pairs of search, checkpoint selection and final evaluation together."""
        return sum(self[purpose].pairs for purpose in _MAIN_RUN)
