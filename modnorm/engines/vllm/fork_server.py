"""The process from which vLLM's workers on GPUs are forked.

A spawned worker imports vLLM once its parent has, which takes ten seconds more. The fork server
imports it at the same time. It has no threads, so its forks inherit no lock that is held.
"""

import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

_MODULES = ["vllm.v1.worker.gpu_worker"]
_THREADS = "OMP_NUM_THREADS"


class _Worker(ForkServerProcess):
    """A process with the environment of its parent; the server's is older."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - of `Process`
        super().__init__(*arguments, **named)
        self._environment = dict(os.environ)  # noqa: TID251 - vLLM's settings

    def run(self) -> None:
        os.environ.update(self._environment)  # noqa: TID251 - see above
        super().run()


class WorkerContext(ForkServerContext):
    """Starts processes from the fork server, and the server if it does not run."""

    Process = _Worker


def start_fork_server() -> None:
    """Begin to import vLLM in the fork server; call it before vLLM is imported here."""
    WorkerContext().set_forkserver_preload(_MODULES)
    # vLLM gives its workers one thread by this variable, which is read when torch is imported.
    variables = os.environ  # noqa: TID251 - the server inherits them
    threads = variables.get(_THREADS)
    variables[_THREADS] = threads or "1"
    try:
        forkserver.ensure_running()
    finally:
        if not threads:
            del variables[_THREADS]
