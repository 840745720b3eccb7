"""A process that has imported services and commands, and starts them by fork.

Importing torch takes seconds, a fork takes milliseconds. The parent only imports modules, at the
first request: it has no Python thread, no connection and no model. A child has its own session and
environment and runs a module like `python -m`.

Each connection to its socket requests one process by a JSON line and receives the process id.
`verification.labs.forked_command` also sends its standard descriptors and stays connected. It
receives the exit code, and its end kills the process, even a stopped one. At the end of stdin all
children are killed.
"""

import gc
import importlib
import json
import mmap
import os
import random
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ctypes import CDLL, get_errno
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from verification.labs import forked_command

MODULES = (
    "modnorm.services.sampler.server",
    "modnorm.services.calibrator.server",
    "modnorm.services.evaluator.server",
    "modnorm.services.evaluator.supervisor",
    "modnorm.services.aggregator.server",
    "celery.fixups.django",
    "celery.worker.consumer",
    "kombu.transport.redis",
    "psycopg",
    "modnorm.services.embedded",
    "modnorm.analysis.report",
    "modnorm.cli.app",
    "transformers.models.qwen2.modeling_qwen2",
    "modnorm.training.fine_tuning",
)
"""Modules that services and commands import, which takes most of a short process's time."""
_CHUNK = 1 << 16
_PR_SET_PDEATHSIG = 1


_OFFSET = struct.Struct("<d")
_real_time = time.time


class MovableClock:
    """The time of day in seconds since the epoch, moved once a file is attached.

    Timeouts use the monotonic clock, which real adjustments of the time of day do not move either.
    """

    def __init__(self) -> None:
        self._shared: mmap.mmap | None = None

    def __call__(self) -> float:
        offset = 0.0 if self._shared is None else _OFFSET.unpack(self._shared[: _OFFSET.size])[0]
        return _real_time() + float(offset)

    def attach(self, path: Path) -> None:
        """Use the offset in a file from now on."""
        with path.open("rb") as file:
            self._shared = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)


def set_offset(path: Path, seconds: float) -> None:
    """Move the clock of every process that uses a file, which is created if absent."""
    content = _OFFSET.pack(seconds)
    if not path.exists():
        path.write_bytes(content)
    with path.open("r+b") as file:
        file.write(content)


@dataclass(frozen=True)
class Launch:
    """A process to start; an empty text stands for no file, or for the parent's."""

    module: str
    """Module to run as `__main__`."""
    environment: Mapping[str, str]
    log: str
    """File for stderr, and for stdout unless `output` is set; unused with descriptors."""
    arguments: Sequence[str] = ()
    folder: str = ""
    output: str = ""
    """File for stdout."""
    ended: str = ""
    """File for the exit code. A process that is killed writes none."""
    clock: str = ""
    """File with the offset of its time of day."""

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def command(address: str, module: str) -> Sequence[str]:
    """Return a command line that runs a module by the fork server at an address."""
    return (sys.executable, "-I", "-S", forked_command.__file__, address, module)


def main() -> None:
    """Fork requested processes until stdin ends."""
    clock = MovableClock()
    # Before any import, since default arguments keep the present function.
    time.time = clock
    listener = socket.socket(fileno=int(sys.argv[1]))
    children: dict[int, socket.socket | None] = {}
    while True:
        commands = [connection for connection in children.values() if connection]
        ready = select.select([sys.stdin, listener, *children, *commands], [], [])[0]
        if sys.stdin in ready:
            break
        for process, connection in [*children.items()]:
            if process in ready:
                _reap(process, children.pop(process))
            elif connection in ready:  # the command has ended
                signal.pidfd_send_signal(process, signal.SIGKILL)
                children[process] = None
        if listener in ready:
            _prepare(listener.getsockname())
            _fork(listener, clock, children)


def import_modules() -> None:
    """Import what services and commands import."""
    for module in MODULES:
        importlib.import_module(module)


@cache
def _prepare(address: str) -> None:
    """Import the modules of all forks, once."""
    import_modules()
    if threading.active_count() > 1:
        raise SystemExit("an import started a thread, which a fork would not copy")
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    training: Any = importlib.import_module("modnorm.training.child_process")
    training.COMMAND = command(address, training.MODULE)
    # Else each child looks at all objects of the imports, half a second for each full collection.
    gc.collect()
    gc.freeze()


def _reap(process: int, connection: socket.socket | None) -> None:
    """Take the exit code of a child that has ended, and send it to its command."""
    ended = os.waitid(os.P_PIDFD, process, os.WEXITED)
    os.close(process)
    if connection and ended:
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with connection, suppress(ConnectionError):
            connection.sendall(f"{code}\n".encode())


def _fork(
    listener: socket.socket, clock: MovableClock, children: dict[int, socket.socket | None]
) -> None:
    """Fork the process that the next connection asks for; add its descriptor to the children."""
    connection, _ = listener.accept()
    line, descriptors, _, _ = socket.recv_fds(connection, _CHUNK, 3)
    while line and not line.endswith(b"\n"):
        line += connection.recv(_CHUNK)
    if not line:
        connection.close()
        return  # the caller has ended
    launch = Launch(**json.loads(line))
    child = os.fork()
    if child == 0:
        listener.close()
        connection.close()
        _become(launch, clock, descriptors)
    process = os.pidfd_open(child)
    for descriptor in descriptors:
        os.close(descriptor)
    with suppress(ConnectionError):
        connection.sendall(json.dumps({"pid": child}).encode() + b"\n")
    if not descriptors:
        connection.close()
    children[process] = connection if descriptors else None


def _become(launch: Launch, clock: MovableClock, descriptors: Sequence[int]) -> NoReturn:
    """Turn a fork into the requested process."""
    code = 1
    try:
        _detach(launch, descriptors)
        _set_threads()
        if launch.clock:
            clock.attach(Path(launch.clock))
        sys.argv = [launch.module, *launch.arguments]
        runpy.run_module(launch.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - printed as the interpreter does
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):  # nobody reads a pipe any more
            sys.stdout.flush()
            sys.stderr.flush()
        if launch.ended:
            Path(launch.ended).write_text(str(code))
        os._exit(code)


def _detach(launch: Launch, descriptors: Sequence[int]) -> None:
    # The background jobs of a shell ignore it, and so would their forks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    if CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(get_errno(), "prctl failed")
    given = descriptors or (
        os.open(os.devnull, os.O_RDONLY),
        _open(launch.output or launch.log),
        _open(launch.log),
    )
    for target, source in enumerate(given):
        os.dup2(source, target)
        os.close(source)
    # The parent's streams would go on seeking, as its log can and a pipe cannot.
    sys.stdout, sys.stderr = (os.fdopen(one, "w", buffering=1, closefd=False) for one in (1, 2))
    if launch.folder:
        os.chdir(launch.folder)
    os.environ.clear()  # noqa: TID251 - sets the child's environment
    os.environ.update(launch.environment)  # noqa: TID251 - the same
    random.seed()


def _set_threads() -> None:
    """Give torch the child's number of threads: it has read the parent's when it was imported."""
    if "torch" in sys.modules and (threads := os.environ.get("OMP_NUM_THREADS")):  # noqa: TID251
        sys.modules["torch"].set_num_threads(int(threads))


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


if __name__ == "__main__":
    main()
