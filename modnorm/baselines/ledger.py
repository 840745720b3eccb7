"""What a run cost, counted from what ran (paper, app. "Evaluation-Budget Accounting")."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType


class Purpose(StrEnum):
    """What an evaluation was for."""

    SEARCH = "search"
    """It decided an update: part of the main-run budget."""
    DEVELOPMENT = "development"
    """It chose the reported state: part of the main-run budget."""
    MONITORING = "monitoring"
    """It chose nothing: outside the budget."""
    FINAL = "final"
    """The reported state on the held-out rows: part of the main-run budget."""


_MAIN_RUN = (Purpose.SEARCH, Purpose.DEVELOPMENT, Purpose.FINAL)


@dataclass(frozen=True, slots=True)
class Account:
    """The evaluations of one purpose."""

    attempted: int = 0
    """Models whose evaluation was begun, each attempt counted."""
    completed: int = 0
    """Models that answered all rows."""
    pairs: int = 0
    """Model-prompt pairs that were generated and scored."""
    tokens: int = 0
    """Tokens generated for them."""

    def plus(self, attempts: int, pairs: int, tokens: int) -> "Account":
        """Return the account with one more model; one that failed has no pairs."""
        return Account(
            self.attempted + attempts,
            self.completed + (pairs > 0),
            self.pairs + pairs,
            self.tokens + tokens,
        )


@dataclass(frozen=True)
class Ledger:
    """The accounts of a run."""

    accounts: Mapping[Purpose, Account] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, purpose: Purpose) -> Account:
        return self.accounts.get(purpose, Account())

    def charged(self, purpose: Purpose, *, attempts: int, pairs: int, tokens: int) -> "Ledger":
        """Return the ledger with one more model evaluated.

        Args:
            purpose: What for.
            attempts: Attempts that it took.
            pairs: Prompts that it answered; 0 when it failed.
            tokens: Tokens that it generated.
        """
        account = self[purpose].plus(attempts, pairs, tokens)
        return replace(self, accounts=MappingProxyType({**self.accounts, purpose: account}))

    @property
    def main_run(self) -> int:
        """Model-prompt pairs of search, checkpoint selection and final evaluation together."""
        return sum(self[purpose].pairs for purpose in _MAIN_RUN)
