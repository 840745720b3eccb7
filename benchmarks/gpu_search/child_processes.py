"""Contenders in separate processes, since only the end of a process frees a GPU's memory."""

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection

QUIET: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    # The published code and the project's engine have the scheduler in the driver's process.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
END_SECONDS = 60.0


class Child:
    """A process that answers messages one by one.

    Args:
        name: Its name in messages.
        module: Module whose function `serve(connection, settings)` the process runs; only that
            process imports it.
        settings: Argument of that function.
        variables: Additional environment variables.
    """

    def __init__(
        self,
        name: str,
        module: str,
        settings: object,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.name = name
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_run, args=(module, theirs, settings, {**QUIET, **(variables or {})}), name=name
        )
        self._process.start()
        theirs.close()

    def tell(self, message: object) -> None:
        """Send a message.

        Raises:
            SystemExit: the process has ended.
        """
        try:
            self.connection.send(message)
        except OSError as error:
            raise self._gone() from error

    def answer(self, seconds: float | None = None) -> object:
        """Return its next message.

        Args:
            seconds: Time limit, after which the process is killed; None waits.

        Raises:
            SystemExit: the process has ended.
        """
        if seconds is not None and not self.connection.poll(seconds):
            self._process.kill()
        try:
            answer: object = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._gone() from error
        return answer

    def ask(self, message: object) -> object:
        """Send a message and wait for the answer."""
        self.tell(message)
        return self.answer()

    def end(self) -> None:
        """Ask the process to end; kill it if it does not."""
        with suppress(OSError):  # the process may have ended
            self.connection.send(None)
        self._process.join(END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.connection.close()

    def _gone(self) -> SystemExit:
        self._process.join(END_SECONDS)
        return SystemExit(f"{self.name} has ended with {self._process.exitcode}; see above")


@contextmanager
def ending(*children: Child) -> Iterator[None]:
    """End processes at the end of the context."""
    try:
        yield
    finally:
        for child in children:
            child.end()


def measured_by(
    name: str, module: str, settings: object, variables: Mapping[str, str] | None = None
) -> object:
    """Return the one message of a process that measures and ends; see `Child`."""
    child = Child(name, module, settings, variables)
    with ending(child):
        return child.answer()


def _run(
    module: str, connection: Connection, settings: object, variables: Mapping[str, str]
) -> None:
    for name, value in variables.items():
        os.environ[name] = value  # noqa: TID251 - vLLM and CUDA read it only there
    import_module(module).serve(connection, settings)
