"""Messages between the caller's process and the jail."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum


class Mechanism(StrEnum):
    """An isolation mechanism that needs support by the kernel or the service's privileges."""

    OWN_UID = "own_uid"
    """Another uid for programs; needs root."""
    NAMESPACES = "namespaces"
    """Own mounts, network, IPC and host name; a PID namespace and a tmpfs for each program."""
    SECCOMP = "seccomp"
    """Listed system calls only."""
    LANDLOCK = "landlock"
    """Listed files only, no TCP, no signals to others."""


@dataclass(frozen=True)
class JailPolicy:
    mechanisms: Sequence[str]
    readable: Sequence[str]
    empty_directory: str
    """Mount point of the private root; without namespaces, the working directory of programs."""


@dataclass(frozen=True)
class ProgramBounds:
    memory_bytes: int
    """Address space beyond that of the idle interpreter."""
    scratch_bytes: int
    """Size of the working directory, and of the largest file."""
    output_bytes: int
    cpu_seconds: float
    life_seconds: float
    """Wall time after which the warden ends it, independent of the caller."""
    tasks: int


@dataclass(frozen=True)
class ZygoteStatus:
    """The first message of a zygote."""

    mechanisms: Sequence[str]
    refusals: dict[str, str]
    landlock_abi: int


class EndReason(StrEnum):
    """The cause of the end of a program's process, as its warden saw it."""

    EXIT = "exit"
    SIGNAL = "signal"
    WALL = "wall"
    OUTPUT = "output"
    DISMISSED = "dismissed"
    """The caller closed the session."""
    SETUP = "setup"
    """The isolation was not set up: nothing of the program ran."""


@dataclass(frozen=True)
class WardenReport:
    """The last message of a warden."""

    end: str
    code: int
    """Exit code or signal number."""
    cpu_seconds: float
    printed: str
    """End of the printed output; after a failed set-up, the error."""


READY = b"ready"
"""Start of a warden's first message if its program is isolated; the program's pid follows."""


def pack(message: JailPolicy | ProgramBounds | ZygoteStatus | WardenReport) -> bytes:
    """Encode a message as JSON."""
    return json.dumps(asdict(message)).encode()
