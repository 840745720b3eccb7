"""The faults. Each function injects one, undoes it if necessary, and returns a description.

A fault without effect, for example after the end of the experiment, returns None.
"""

import random
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import psycopg
import redis

from verification.chaos import faulty_worker, host
from verification.chaos.chaos_lab import LEASE_SECONDS, REAP_SECONDS, Lab
from verification.chaos.fault_schedule import Fault
from verification.chaos.observer import Observer
from verification.chaos.proxy import Mode
from verification.labs.forked import Process
from verification.labs.waiting import HANG_SECONDS, wait_until

PATIENCE = HANG_SECONDS
"""Seconds to wait for the right moment of a fault: the length of several jobs."""
_EXPIRY_SECONDS = LEASE_SECONDS + 2 * REAP_SECONDS + 0.5
"""Seconds without a heartbeat after which a lease has expired and its end is stored."""


@dataclass(frozen=True)
class FaultContext:
    """The lab, observer and randomness of a fault."""

    lab: Lab
    observer: Observer
    source: random.Random


def _kill_evaluator(context: FaultContext) -> str | None:
    name = _holder(context)
    if name is None:
        return None
    context.lab.kill(name)
    return f"killed {name}, which held a lease"


def _kill_engine(context: FaultContext) -> str | None:
    """Kill the worker process of the supervisor."""
    process = context.lab.services.get("supervised")
    children = process.process.children() if process is not None and process.process else []
    if not children:
        return None
    for pid in children:
        Process(pid).kill()
    held = "supervised" in context.observer.observe().holders
    return f"killed the child of supervised, which held {'a' if held else 'no'} lease"


def _kill_aggregator(context: FaultContext) -> str | None:
    """Kill the aggregator between two statements of a transaction that ends a job.

    A lock on the table of events blocks that transaction after it has written the job.
    """
    caught, killed = False, False
    with (
        suppress(psycopg.Error),
        context.lab.database.connect() as connection,
        connection.transaction(),
    ):
        connection.execute("LOCK TABLE events IN SHARE MODE")
        with suppress(TimeoutError):
            wait_until(lambda: _blocked(context.observer), "a transaction", PATIENCE)
            caught = True
        context.lab.kill("aggregator")
        killed = True
    if not killed:  # the database was down
        context.lab.kill("aggregator")
    return f"killed the aggregator {'in the middle of' if caught else 'outside'} a transaction"


def _update_aggregator(context: FaultContext) -> str | None:
    """Let the aggregator end itself and start again, as in an update."""
    service = context.lab.services["aggregator"]
    if service.process is None:
        return None
    before = service.starts
    service.process.send_signal(signal.SIGTERM)
    wait_until(lambda: service.starts > before, "the aggregator is started again", PATIENCE)
    return "ended the aggregator by SIGTERM"


def _blocked(observer: Observer) -> bool:
    query = "SELECT 1 FROM pg_locks WHERE relation = 'events'::regclass AND NOT granted"
    return bool(observer.rows(query))


def _kill_service(name: str, context: FaultContext) -> str | None:
    context.lab.kill(name)
    return f"killed the {name} while {context.observer.observe().state or 'submitting'}"


def _pause_evaluator(context: FaultContext) -> str | None:
    name = _holder(context)
    if name is None:
        return None
    return _pause(context, name, _EXPIRY_SECONDS + context.source.uniform(0, 1))


def _pause(context: FaultContext, name: str, seconds: float) -> str:
    service = context.lab.services[name]
    service.signal(signal.SIGSTOP)
    time.sleep(seconds)
    service.signal(signal.SIGCONT)
    return f"stopped {name} for {seconds:.1f} s"


def _flush_broker(context: FaultContext) -> str | None:
    with suppress(redis.RedisError), context.lab.broker.connect() as client:
        client.flushall()
        return "flushed the broker"
    return None


def _restart_broker(context: FaultContext) -> str | None:
    loses = context.source.random() < 0.5
    if loses:
        _flush_broker(context)
    context.lab.broker.end(context.source.choice((signal.SIGKILL, signal.SIGTERM)))
    context.lab.broker.wait()
    return f"restarted the broker, {'without' if loses else 'with'} its messages"


def _restart_database(context: FaultContext) -> str | None:
    context.lab.database.end(signal.SIGQUIT)
    context.lab.database.wait()
    return "restarted the database (immediate shutdown)"


def _cut_link(context: FaultContext) -> str | None:
    proxy, source = context.lab.proxy, context.source
    name = source.choice(sorted(proxy.links))
    mode = source.choice([mode for mode in Mode if mode is not Mode.PASS])
    seconds = source.uniform(0.2, 2 * LEASE_SECONDS)
    proxy.turn(name, mode)
    time.sleep(seconds)
    proxy.turn(name, Mode.PASS)
    return f"{mode} on {name} for {seconds:.1f} s"


def _cut_host(context: FaultContext) -> str | None:
    """Cut off one evaluator's host, by its network namespace or its links."""
    lab, seconds = context.lab, context.source.uniform(1.0, 2 * LEASE_SECONDS)
    if lab.far is not None:
        lab.far.cut()
        time.sleep(seconds)
        lab.far.join()
        return f"cut the namespace of far for {seconds:.1f} s"
    names = [name for name in lab.proxy.links if name.startswith("far-")]
    for name in names:
        lab.proxy.turn(name, Mode.STALL)
    time.sleep(seconds)
    for name in names:
        lab.proxy.turn(name, Mode.PASS)
    return f"cut the links of far for {seconds:.1f} s"


def _jump_clock(context: FaultContext) -> str | None:
    """Move the aggregator's clock, in half of the cases just after an evaluator was killed.

    Then no heartbeat corrects the deadline of its lease, which the earlier clock has set.
    """
    seconds = context.source.choice((-1, 1)) * 10 ** context.source.uniform(0.5, 4.0)
    killed = _kill_evaluator(context) if context.source.random() < 0.5 else None
    context.lab.move_clock(seconds)
    moved = f"moved the aggregator's clock by {seconds:+.0f} s"
    return f"{killed}, and {moved}" if killed else moved


def _fill_disk(context: FaultContext) -> str | None:
    """Fill the disk of the database, the broker's log, profiles and scale maps."""
    if not context.lab.disk:
        return None
    seconds = context.source.uniform(1.0, 5.0)
    host.fill(context.lab.state)
    time.sleep(seconds)
    host.empty(context.lab.state)
    context.lab.database.wait()
    context.lab.broker.wait()
    return f"filled the disk for {seconds:.1f} s"


def _holder(context: FaultContext, workers: Collection[str] = ()) -> str | None:
    """Wait for a worker that holds a lease; return its name, or None if there is none.

    Args:
        context: The lab.
        workers: Names of the workers that count; all workers by default.
    """
    wanted = workers or context.lab.workers
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        observation = context.observer.observe()
        holders = [name for name in observation.holders if name in wanted]
        if holders or observation.ended:
            return context.source.choice(holders) if holders else None
        time.sleep(0.02)
    return None


INJECT: Mapping[Fault, Callable[[FaultContext], str | None]] = {
    Fault.KILL_EVALUATOR: _kill_evaluator,
    Fault.KILL_ENGINE: _kill_engine,
    Fault.KILL_AGGREGATOR: _kill_aggregator,
    Fault.KILL_CALIBRATOR: partial(_kill_service, "calibrator"),
    Fault.KILL_SAMPLER: partial(_kill_service, "sampler"),
    Fault.PAUSE_EVALUATOR: _pause_evaluator,
    Fault.PAUSE_AGGREGATOR: lambda context: _pause(
        context, "aggregator", context.source.uniform(0.5, 1.5 * LEASE_SECONDS)
    ),
    Fault.FLUSH_BROKER: _flush_broker,
    Fault.RESTART_BROKER: _restart_broker,
    Fault.RESTART_DATABASE: _restart_database,
    Fault.CUT_LINK: _cut_link,
    Fault.CUT_HOST: _cut_host,
    Fault.JUMP_CLOCK: _jump_clock,
    Fault.FILL_DISK: _fill_disk,
    Fault.REPEAT_MESSAGES: lambda context: faulty_worker.repeat_messages(
        context.lab, context.source
    ),
    Fault.REPEAT_REPORT: lambda context: faulty_worker.repeat_report(
        context.lab, context.observer, context.source
    ),
    Fault.LATE_REPORT: lambda context: faulty_worker.late_report(context.lab, context.observer),
    Fault.UPDATE_AGGREGATOR: _update_aggregator,
}
