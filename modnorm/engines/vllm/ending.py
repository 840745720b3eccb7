"""The end of vLLM, which is to come whatever vLLM does."""

import logging
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from multiprocessing.process import BaseProcess

from modnorm.engines.vllm.start import RunningEngine

END_SECONDS = 12.0
"""Longer than vLLM's workers get by default: five to end by themselves, four after a signal."""
_KILL_SECONDS = 2.0
"""For killed processes to be gone, with the memory that they held."""

logger = logging.getLogger(__name__)


def end_vllm(engine: RunningEngine, *, seconds: float = END_SECONDS) -> bool:
    """End vLLM's workers and free what it holds in this process; return whether it has ended.

    Workers in processes of their own are killed when vLLM has not ended them in time, and the
    thread that waits for it is left behind, asleep. vLLM 0.26 was seen to hang so on a GPU: a
    process that is to stop, or to load another model, would wait for ever.

    Args:
        engine: What runs; not used afterwards.
        seconds: What vLLM may take where its workers have processes of their own.
    """
    processes = _processes(engine)
    if not processes:
        engine.engine_core.shutdown()
        return True
    ended: Future[None] = Future()
    thread = threading.Thread(
        target=_run, args=(engine.engine_core.shutdown, ended), name="ending", daemon=True
    )
    thread.start()
    wait([ended], seconds)
    try:
        if ended.done():
            ended.result()  # raises what went wrong
            return True
        logger.warning("vLLM did not end in time; it hangs at\n%s", _where(thread))
        _leave_alone(engine)
        return False
    finally:
        _kill(processes)


def _executor(engine: RunningEngine) -> object:
    return getattr(getattr(engine.engine_core, "engine_core", None), "model_executor", None)


def _processes(engine: RunningEngine) -> Sequence[BaseProcess]:
    """Return the processes of vLLM's workers; none where they share this one."""
    handles = getattr(_executor(engine), "workers", None) or ()
    return [handle.proc for handle in handles if hasattr(handle, "proc")]


def _kill(processes: Sequence[BaseProcess]) -> None:
    """See that no process is left: it would keep the memory that the next engine needs."""
    left = [process for process in processes if process.is_alive()]
    for process in left:
        process.kill()
    deadline = time.monotonic() + _KILL_SECONDS
    for process in left:
        process.join(max(0.0, deadline - time.monotonic()))


def _leave_alone(engine: RunningEngine) -> None:
    """Keep this process from ending vLLM once more, where it hangs, when it ends itself."""
    finalizer = getattr(_executor(engine), "_finalizer", None)
    if isinstance(finalizer, weakref.finalize):
        finalizer.detach()


def _run(work: Callable[[], None], ended: "Future[None]") -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        ended.set_exception(error)
    else:
        ended.set_result(None)


def _where(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the only way to them
    return "".join(traceback.format_stack(frame)) if frame else "its end"
