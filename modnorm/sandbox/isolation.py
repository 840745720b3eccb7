"""The guarantees of a sandbox, as measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from modnorm.errors import UnavailableError
from modnorm.sandbox.jail.jail_messages import Mechanism


class Guarantee(StrEnum):
    """A property that must hold before any program of a model runs."""

    CORRECT_VERDICTS = "correct_verdicts"
    """A correct program passes and a wrong one fails."""
    NO_NETWORK = "no_network"
    NO_FOREIGN_READS = "no_foreign_reads"
    NO_FOREIGN_WRITES = "no_foreign_writes"
    NO_FOREIGN_PROCESSES = "no_foreign_processes"
    NO_PRIVILEGES = "no_privileges"
    BARE_ENVIRONMENT = "bare_environment"
    """No environment variable and no open file of the caller."""
    NO_SURVIVORS = "no_survivors"
    """Processes that a program starts end with it."""
    BOUNDED_TASKS = "bounded_tasks"
    BOUNDED_MEMORY = "bounded_memory"
    BOUNDED_TIME = "bounded_time"
    BOUNDED_OUTPUT = "bounded_output"


@dataclass(frozen=True, slots=True)
class Isolation:
    """The result of a measurement.

    Attributes:
        broken: Guarantees that do not hold, each with the observation.
        mechanisms: Active isolation mechanisms.
        refusals: The kernel's reasons for the inactive mechanisms.
        landlock_abi: Version of Landlock, 0 for none.
        writable_scratch: Whether programs have a writable working directory; it is bounded and
            deleted with the program.
    """

    broken: Mapping[Guarantee, str]
    mechanisms: Sequence[Mechanism]
    refusals: Mapping[Mechanism, str]
    landlock_abi: int
    writable_scratch: bool

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Guarantees that hold."""
        return tuple(guarantee for guarantee in Guarantee if guarantee not in self.broken)

    @property
    def healthy(self) -> bool:
        """Whether all guarantees hold."""
        return not self.broken

    @property
    def summary(self) -> str:
        """The active mechanisms: `landlock, namespaces, own_uid, seccomp`."""
        return ", ".join(sorted(self.mechanisms))

    def require(self) -> None:
        """Require all guarantees.

        Raises:
            UnavailableError: a guarantee does not hold.
        """
        if self.healthy:
            return
        broken = "; ".join(f"{name}: {reason}" for name, reason in self.broken.items())
        refused = "; ".join(f"{name}: {reason}" for name, reason in self.refusals.items())
        raise UnavailableError(
            f"the sandbox does not isolate here: {broken}",
            remedy=f"allow the refused mechanisms ({refused or 'none'}), or use a sandbox service",
        )
