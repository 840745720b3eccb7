"""Forks vLLM's workers on GPUs from a server, which imports vLLM while the engine's process does.

A spawned worker imports it once its parent has, which takes ten seconds more. A fork of the
engine's process would inherit locks that its threads hold; the server has one thread.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

MODULES = ("vllm.v1.worker.gpu_worker",)
"""Imported by the server; if vLLM moves one, workers import it themselves. None of them may import
`rank_model`, which reads its worker's environment."""
_THREADS = "OMP_NUM_THREADS"
# As other starts of Python here, the server imports nothing from the current directory.
_OF_SERVER = {_THREADS: "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}


class _Worker(ForkServerProcess):
    """A process with the environment of its parent; its output goes where the server's does."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - of `Process`
        super().__init__(*arguments, **named)
        self._environment = dict(os.environ)  # noqa: TID251 - vLLM's settings

    def run(self) -> None:
        import torch  # noqa: PLC0415 - imported in the server

        variables = os.environ  # noqa: TID251 - see above
        # Equal ones stay: setproctitle writes where they lie.
        for name in variables.keys() - self._environment.keys():
            del variables[name]
        variables.update(self._environment.items() - variables.items())
        if threads := variables.get(_THREADS):
            torch.set_num_threads(int(threads.partition(",")[0]))
        super().run()


class WorkerContext(ForkServerContext):
    """Starts processes from the server, and the server if it does not run."""

    Process = _Worker


def preload_workers() -> None:
    """Start the server; call it before vLLM is imported here."""
    WorkerContext().set_forkserver_preload(list(MODULES))
    with _environment(_OF_SERVER):
        forkserver.ensure_running()


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    variables = os.environ  # noqa: TID251 - child processes inherit it
    kept = {name: variables.get(name) for name in changes}
    variables.update(changes)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del variables[name]
            else:
                variables[name] = value
