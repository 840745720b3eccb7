"""Measures a jail: honest programs must pass in it, and forbidden things must fail."""

import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import EngineError
from modnorm.sandbox.execution import execute
from modnorm.sandbox.isolation import Guarantee, Isolation
from modnorm.sandbox.jail import probes
from modnorm.sandbox.jail.jail_messages import Mechanism
from modnorm.sandbox.program import MEBIBYTE, Limits, Program, Verdict
from modnorm.sandbox.session import ProgramSession, StoppedError
from modnorm.sandbox.zygote_client import ENVIRONMENT, ZygoteClient, tasks_of_user

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


@dataclass(frozen=True)
class _Bait:
    """Things of the host that no program may reach.

    Attributes:
        port: A port that listens on loopback, TCP.
        abstract: Name of a Unix socket without a path that listens.
        directory: A directory that all may write to, with `public` (all may write) and `secret`.
    """

    port: int
    abstract: str
    directory: Path


@contextmanager
def _baited() -> Iterator[_Bait]:
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
        yield _Bait(tcp.getsockname()[1], abstract, directory)


def measure(zygote: ZygoteClient) -> Isolation:
    """Run the canaries.

    Raises:
        EngineError: the jail itself failed.
    """
    tasks = tasks_of_user()
    broken = dict(_attempted(zygote, tasks))
    for guarantee, canary in _CANARIES.items():
        if (seen := canary(zygote)) is not None:
            broken[guarantee] = seen
    return Isolation(
        broken=broken,
        mechanisms=tuple(Mechanism(name) for name in zygote.status.mechanisms),
        refusals={Mechanism(name): why for name, why in zygote.status.refusals.items()},
        landlock_abi=zygote.status.landlock_abi,
        writable_scratch=_ask(zygote, f"scratch({_LIMITS.scratch_bytes})") is True,
    )


def _attempted(zygote: ZygoteClient, tasks: int) -> Iterator[tuple[Guarantee, str]]:
    """Yield what a program was not kept from."""
    with _baited() as bait:
        directory, pid = str(bait.directory), os.getpid()
        attempts = {
            Guarantee.NO_NETWORK: f"no_network({bait.port}, {bait.abstract!r})",
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
    """Ask a fresh program of probes; whatever keeps it from answering is not True."""
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
    def canary(zygote: ZygoteClient) -> str | None:
        outcome = execute(zygote, Program([source], [], limits))
        return None if outcome.verdict is verdict else f"{source!r} gave {outcome}"

    return canary


def _no_survivors(zygote: ZygoteClient) -> str | None:
    """Whatever holds the program's channel open after its end has survived it."""
    session = ProgramSession(zygote, _LIMITS)
    try:
        with session:
            session.run(_PROBES)
            session.ask("fork_some(4)")
            witness = session.witness()
    except StoppedError as stopped:
        return stopped.detail
    with witness:
        witness.settimeout(5.0)
        try:
            while witness.recv(65536):
                pass
        except TimeoutError:
            return "a child outlived its program"
        except OSError as error:
            raise EngineError(f"the channel broke: {error}") from error
    return None


_CANARIES: Mapping[Guarantee, Callable[[ZygoteClient], str | None]] = {
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
