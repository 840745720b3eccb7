"""What a sandbox keeps programs from, measured by programs that try it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from modnorm.errors import UnavailableError
from modnorm.sandbox.jail.jail_messages import Mechanism


class Guarantee(StrEnum):
    """Something that must hold before any program of a model runs."""

    CORRECT_VERDICTS = "correct_verdicts"
    """A correct program passes and a wrong one fails."""
    NO_NETWORK = "no_network"
    NO_FOREIGN_READS = "no_foreign_reads"
    NO_FOREIGN_WRITES = "no_foreign_writes"
    NO_FOREIGN_PROCESSES = "no_foreign_processes"
    NO_PRIVILEGES = "no_privileges"
    BARE_ENVIRONMENT = "bare_environment"
    """No variable and no open file of the caller's."""
    NO_SURVIVORS = "no_survivors"
    """Whatever a program starts ends with it."""
    BOUNDED_TASKS = "bounded_tasks"
    BOUNDED_MEMORY = "bounded_memory"
    BOUNDED_TIME = "bounded_time"
    BOUNDED_OUTPUT = "bounded_output"


@dataclass(frozen=True, slots=True)
class Isolation:
    """A measurement.

    Attributes:
        broken: Guarantees that do not hold, and what was seen.
        mechanisms: Fences that are up.
        refusals: Why the kernel refused the other fences.
        landlock_abi: Version of Landlock, 0 for none.
        writable_scratch: Whether programs have a working directory that they can write to; it
            is then bounded, and gone with the program.
    """

    broken: Mapping[Guarantee, str]
    mechanisms: Sequence[Mechanism]
    refusals: Mapping[Mechanism, str]
    landlock_abi: int
    writable_scratch: bool

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Guarantees that hold."""
        return tuple(each for each in Guarantee if each not in self.broken)

    @property
    def healthy(self) -> bool:
        """Whether all guarantees hold."""
        return not self.broken

    @property
    def summary(self) -> str:
        """The fences that are up: `landlock, namespaces, own_uid, seccomp`."""
        return ", ".join(sorted(self.mechanisms))

    def require(self) -> None:
        """Refuse to go on without all guarantees.

        Raises:
            UnavailableError: one does not hold.
        """
        if self.healthy:
            return
        broken = "; ".join(f"{name}: {why}" for name, why in self.broken.items())
        refused = "; ".join(f"{name}: {why}" for name, why in self.refusals.items())
        raise UnavailableError(
            f"the sandbox does not isolate here: {broken}",
            remedy=f"allow what was refused ({refused or 'nothing'}), or use a sandbox service",
        )
