"""The guarantees of a sandbox, as measured."""

import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, Self

from modnorm.errors import EngineError, UnavailableError
from modnorm.sandbox.execution import execute
from modnorm.sandbox.jail import probes
from modnorm.sandbox.jail.jail_messages import Mechanism
from modnorm.sandbox.program import MEBIBYTE, Limits, Program, ProgramOutcome, Verdict
from modnorm.sandbox.session import (
    ENVIRONMENT,
    ProgramSession,
    StoppedError,
    ZygoteClient,
    tasks_of_user,
)


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
    """The result of a measurement."""

    broken: Mapping[Guarantee, str]
    mechanisms: Sequence[Mechanism]
    refusals: Mapping[Mechanism, str]
    landlock_abi: int
    writable_scratch: bool
    """Whether programs have a bounded working directory, which is deleted with the program."""

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
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
        if self.healthy:
            return
        broken = "; ".join(f"{name}: {reason}" for name, reason in self.broken.items())
        refused = "; ".join(f"{name}: {reason}" for name, reason in self.refusals.items())
        raise UnavailableError(
            f"the sandbox does not isolate here: {broken}",
            remedy=f"allow the refused mechanisms ({refused or 'none'}), or use a sandbox service",
        )


_LIMITS = Limits(step_seconds=20.0, wall_seconds=60.0, scratch_bytes=MEBIBYTE, tasks=16)
_HONEST = """
import colorsys, threading
def double(x):
    results = []
    thread = threading.Thread(target=lambda: results.append(colorsys.rgb_to_hsv(x, x, x)[2] * 2))
    thread.start()
    thread.join()
    return int(results[0])
"""
_PROBES = Path(probes.__file__).read_text()


@contextmanager
def _host_targets() -> Iterator[tuple[int, str, str]]:
    """Open targets that no program may reach: a TCP port, an abstract socket, a directory."""
    abstract = f"modnorm-{secrets.token_hex(8)}"
    with (
        tempfile.TemporaryDirectory(prefix="modnorm-bait-") as name,
        socket.socket(socket.AF_INET) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        directory = Path(name)
        (directory / "secret").write_text(secrets.token_hex(8))
        (directory / "secret").chmod(0o600)
        (directory / "public").write_text("public")
        (directory / "public").chmod(0o666)
        directory.chmod(0o777)
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        unix.bind("\0" + abstract)
        unix.listen()
        yield tcp.getsockname()[1], abstract, name


def measure(zygote: ZygoteClient) -> Isolation:
    """Return which guarantees hold, from programs that try to break them."""
    tasks = tasks_of_user()
    broken = dict(_successful_attempts(zygote, tasks))
    for guarantee, check in _CHECKS.items():
        if (failure := check(zygote)) is not None:
            broken[guarantee] = failure
    return Isolation(
        broken=broken,
        mechanisms=tuple(Mechanism(name) for name in zygote.status.mechanisms),
        refusals={Mechanism(name): reason for name, reason in zygote.status.refusals.items()},
        landlock_abi=zygote.status.landlock_abi,
        writable_scratch=_ask(zygote, f"scratch({_LIMITS.scratch_bytes})") is True,
    )


def _successful_attempts(zygote: ZygoteClient, tasks: int) -> Iterator[tuple[Guarantee, str]]:
    """Yield the forbidden acts that succeeded, each with the guarantee that it breaks."""
    with _host_targets() as (port, abstract, directory):
        pid = os.getpid()
        attempts = {
            Guarantee.NO_NETWORK: f"no_network({port}, {abstract!r})",
            Guarantee.NO_FOREIGN_READS: f"no_foreign_reads({directory + '/secret'!r}, {pid})",
            Guarantee.NO_FOREIGN_WRITES: (
                f"no_foreign_writes({directory!r}, {directory + '/public'!r})"
            ),
            Guarantee.NO_FOREIGN_PROCESSES: f"no_foreign_processes({pid})",
            Guarantee.NO_PRIVILEGES: "no_privileges()",
            Guarantee.BARE_ENVIRONMENT: f"bare_environment({tuple(ENVIRONMENT)!r})",
            Guarantee.BOUNDED_TASKS: f"bounded_tasks({2 * _LIMITS.tasks + tasks + 64})",
        }
        for guarantee, attempt in attempts.items():
            answer = _ask(zygote, attempt)
            if answer is not True:
                yield guarantee, f"{attempt} was not stopped: {answer!r}"


def _ask(zygote: ZygoteClient, expression: str) -> object:
    """Return the answer of a new probe program; the reason as text if it does not answer."""
    with ProgramSession(zygote, _LIMITS) as session:
        try:
            session.run(_PROBES)
            return session.ask(expression)
        except StoppedError as stopped:
            return f"{stopped.verdict}: {stopped.detail}"


def _correct_verdicts(zygote: ZygoteClient) -> str | None:
    right = Program(["", _HONEST], ["assert double(21) == 42"], _LIMITS)
    wrong = Program(["", _HONEST], ["assert double(21) == 43"], _LIMITS)
    outcomes = execute(zygote, right), execute(zygote, wrong)
    if [each.verdict for each in outcomes] == [Verdict.PASSED, Verdict.FAILED]:
        return None
    return f"a correct and a wrong program gave {outcomes}"


def _expect(source: str, limits: Limits, verdict: Verdict) -> Callable[[ZygoteClient], str | None]:
    def check(zygote: ZygoteClient) -> str | None:
        outcome = execute(zygote, Program([source], [], limits))
        return None if outcome.verdict is verdict else f"{source!r} gave {outcome}"

    return check


def _no_survivors(zygote: ZygoteClient) -> str | None:
    """Return an error if a process still holds the program's channel after its end."""
    session = ProgramSession(zygote, _LIMITS)
    try:
        with session:
            session.run(_PROBES)
            session.ask("fork_some(4)")
            channel = session.duplicate_channel()
    except StoppedError as stopped:
        return stopped.detail
    with channel:
        channel.settimeout(5.0)
        try:
            while channel.recv(65536):
                pass
        except TimeoutError:
            return "a child outlived its program"
        except OSError as error:
            raise EngineError(f"the channel broke: {error}") from error
    return None


_CHECKS: Mapping[Guarantee, Callable[[ZygoteClient], str | None]] = {
    Guarantee.CORRECT_VERDICTS: _correct_verdicts,
    Guarantee.NO_SURVIVORS: _no_survivors,
    Guarantee.BOUNDED_MEMORY: _expect(
        "x = bytearray(2**30)", Limits(memory_bytes=64 * MEBIBYTE), Verdict.MEMORY
    ),
    Guarantee.BOUNDED_TIME: _expect("while 1: pass", Limits(step_seconds=0.2), Verdict.TIMEOUT),
    Guarantee.BOUNDED_OUTPUT: _expect(
        "while 1: print('x' * 4096)", Limits(output_bytes=65536), Verdict.OUTPUT
    ),
}


class Runner(Protocol):
    """Runs programs: a sandbox of this process or a remote one."""

    def execute(self, program: Program) -> ProgramOutcome:
        """Run a program and judge it."""

    def check_health(self) -> Isolation:
        """Measure the isolation; raise UnavailableError unless all guarantees hold."""


class Sandbox:
    """Runs untrusted programs, each in a new process; threads may share it."""

    def __init__(self, mechanisms: Collection[Mechanism] = frozenset(Mechanism)) -> None:
        self._mechanisms = frozenset(mechanisms)
        self._lock = threading.Lock()
        self._zygote: ZygoteClient | None = None
        self._measured: tuple[ZygoteClient, Isolation] | None = None
        self._began = 0.0

    def execute(self, program: Program) -> ProgramOutcome:
        return execute(self._healthy(), program)

    def check_health(self) -> Isolation:
        """Measure the isolation now."""
        isolation = self.measure()
        isolation.require()
        return isolation

    def measure(self) -> Isolation:
        """Measure the isolation now and return it, healthy or not.

        Meanwhile programs run by the last measurement. Waiting callers share the next one.
        """
        requested = time.monotonic()
        with self._lock:
            current = self._current()
            if current is None or self._began < requested:
                current = self._measure()
            return current[1]

    def _current(self) -> tuple[ZygoteClient, Isolation] | None:
        """Return the running jail and its last measurement; None without either."""
        measured = self._measured
        return measured if measured is not None and measured[0].alive else None

    def _measure(self) -> tuple[ZygoteClient, Isolation]:
        self._began = time.monotonic()
        if self._zygote is None or not self._zygote.alive:
            self._end()
            self._zygote = ZygoteClient(self._mechanisms)
        try:
            self._measured = self._zygote, measure(self._zygote)
        except BaseException:
            self._measured = None
            raise
        return self._measured

    def _healthy(self) -> ZygoteClient:
        current = self._current()
        if current is None:
            with self._lock:
                current = self._current() or self._measure()
        zygote, isolation = current
        isolation.require()
        return zygote

    def _end(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
        self._zygote = self._measured = None

    def close(self) -> None:
        """End the sandbox and all its programs; a later program starts it again."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
