"""A process that has imported the modules of services and commands, and forks them from itself.

Importing torch takes seconds; a fork takes milliseconds. The parent imports modules and does
nothing else: it has no thread of Python's, no connection and no model. A child is a process of its
own session and environment that runs a module as `python -m` would.

Requests are lines of JSON on stdin, answers lines on stdout. When stdin ends, children are killed.
"""

import importlib
import json
import os
import random
import runpy
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from ctypes import CDLL, get_errno
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from verification.labs.clock import MovableClock

MODULES = (
    "services.sampler.server",
    "services.calibrator.server",
    "services.evaluator.server",
    "services.evaluator.supervisor",
    "services.aggregator.server",
    "celery.fixups.django",
    "celery.worker.consumer",
    "kombu.transport.redis",
    "psycopg",
    "services.embedded",
    "modnorm.analysis.report",
    "modnorm.cli.app",
    "transformers.models.qwen2.modeling_qwen2",
)
"""What services and commands import, some of it late: most of the time of a short process."""
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Launch:
    """What to start.

    Attributes:
        module: Run as `__main__`.
        environment: The whole environment.
        log: File that stderr is added to, and stdout unless `output` says otherwise.
        arguments: Arguments of the command line.
        folder: The working directory; the parent's when empty.
        output: File that stdout is added to.
        ended: File that the exit code is written to; none when empty. A process that is killed
            writes none.
        clock: File with the offset of its time of day; none when empty.
        namespace: File of the network namespace to live in; the parent's when empty.
    """

    module: str
    environment: Mapping[str, str]
    log: str
    arguments: Sequence[str] = ()
    folder: str = ""
    output: str = ""
    ended: str = ""
    clock: str = ""
    namespace: str = ""

    def to_line(self) -> str:
        """Return the request as a line."""
        return json.dumps(asdict(self)) + "\n"


def main() -> None:
    """Fork what is asked for until stdin ends."""
    clock = MovableClock()
    # Before any import: defaults of parameters keep the function that is there now.
    time.time = clock
    for module in MODULES:
        importlib.import_module(module)
    if threading.active_count() > 1:
        raise SystemExit("an import started a thread: what is forked would lack it")
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _answer({"ready": os.getpid()})
    for line in sys.stdin:
        launch = Launch(**json.loads(line))
        child = os.fork()
        if child == 0:
            _become(launch, clock)
        _answer({"pid": child})


def _answer(content: Mapping[str, int]) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def _become(launch: Launch, clock: MovableClock) -> NoReturn:
    """Turn a fork into the process that was asked for."""
    code = 1
    try:
        _detach(launch)
        if launch.clock:
            clock.attach(Path(launch.clock))
        sys.argv = [launch.module, *launch.arguments]
        runpy.run_module(launch.module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the end of a process, told as the interpreter would
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if launch.ended:
            Path(launch.ended).write_text(str(code))
        os._exit(code)


def _detach(launch: Launch) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    nothing, log = os.open(os.devnull, os.O_RDONLY), _open(launch.log)
    output = _open(launch.output or launch.log)
    for source, target in ((nothing, 0), (output, 1), (log, 2)):
        os.dup2(source, target)
    if launch.folder:
        os.chdir(launch.folder)
    if launch.namespace:
        with Path(launch.namespace).open("rb") as file:
            _call("setns", file.fileno(), _CLONE_NEWNET)
    os.environ.clear()  # noqa: TID251 - the child's environment is what it was asked to be
    os.environ.update(launch.environment)  # noqa: TID251 - the same
    random.seed()


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _call(function: str, *arguments: int) -> None:
    """Call a function of the C library."""
    if getattr(CDLL(None, use_errno=True), function)(*arguments) != 0:
        raise OSError(get_errno(), f"{function} failed")


if __name__ == "__main__":
    main()
