"""What the trusted side and the jail tell each other."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum


class Mechanism(StrEnum):
    """A fence that needs something from the kernel or from whoever started the service."""

    OWN_UID = "own_uid"
    """Programs run under another uid: needs root."""
    NAMESPACES = "namespaces"
    """Own mounts, network, IPC and host name; a PID namespace and tmpfs each program."""
    SECCOMP = "seccomp"
    """Only listed system calls."""
    LANDLOCK = "landlock"
    """Only listed files, no TCP, no signals to others."""


@dataclass(frozen=True)
class JailPolicy:
    """How the jail is to be built.

    Attributes:
        mechanisms: Fences to use where the kernel has them.
        readable: Files and directories that programs may read.
        empty_directory: Where the private root is mounted; without namespaces, the working
            directory of all programs.
    """

    mechanisms: Sequence[str]
    readable: Sequence[str]
    empty_directory: str


@dataclass(frozen=True)
class ProgramBounds:
    """Bounds of one program, for its warden.

    Attributes:
        memory_bytes: Address space beyond that of the idle interpreter.
        scratch_bytes: Size of the working directory, and of the largest file.
        output_bytes: Printed bytes, both streams together.
        cpu_seconds: CPU time of the process.
        life_seconds: Wall time after which the warden ends it, whatever the trusted side does.
        tasks: Processes and threads that its uid may have.
    """

    memory_bytes: int
    scratch_bytes: int
    output_bytes: int
    cpu_seconds: float
    life_seconds: float
    tasks: int


@dataclass(frozen=True)
class ZygoteStatus:
    """First message of a zygote.

    Attributes:
        mechanisms: Fences that are up.
        refusals: Why others are not.
        landlock_abi: Version of Landlock, 0 for none.
    """

    mechanisms: Sequence[str]
    refusals: dict[str, str]
    landlock_abi: int


class EndReason(StrEnum):
    """What ended a program's process, as its warden saw it."""

    EXIT = "exit"
    SIGNAL = "signal"
    WALL = "wall"
    OUTPUT = "output"
    DISMISSED = "dismissed"
    """The trusted side had what it wanted."""
    SETUP = "setup"
    """The fences did not come up: nothing of the program ran."""


@dataclass(frozen=True)
class WardenReport:
    """Last message of a warden.

    Attributes:
        end: What ended the process.
        code: Exit code or signal number.
        cpu_seconds: User and system time of the process and the children it waited for.
        printed: Tail of what it printed; of a failed set-up, the error.
    """

    end: str
    code: int
    cpu_seconds: float
    printed: str


READY = b"ready"
"""Begins the first message of a warden whose program is fenced in; the program's pid follows."""


def pack(message: JailPolicy | ProgramBounds | ZygoteStatus | WardenReport) -> bytes:
    """Encode a message as JSON."""
    return json.dumps(asdict(message)).encode()
