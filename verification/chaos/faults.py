"""The faults. Each function injects one, undoes it if necessary, and returns a description.

A fault without effect, for example after the end of the experiment, returns None.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
import redis

from verification.chaos import host, intruder
from verification.chaos.chaos_lab import LEASE_SECONDS, REAP_SECONDS, TRAINER, Lab
from verification.chaos.fault_schedule import Fault
from verification.chaos.observer import Observer
from verification.chaos.proxy import Mode
from verification.labs.forked import Process
from verification.labs.waiting import wait_until

PATIENCE = 120.0
"""Seconds to wait for the right moment of a fault: the length of several jobs."""
_EXPIRY_SECONDS = LEASE_SECONDS + 2 * REAP_SECONDS + 0.5
"""Seconds without a heartbeat after which a lease has expired and its end is stored."""


@dataclass(frozen=True)
class Scene:
    """The lab, observer and randomness of a fault.

    Attributes:
        leaving: Set when the client shall leave; it comes back.
    """

    lab: Lab
    observer: Observer
    source: random.Random
    leaving: threading.Event = field(default_factory=threading.Event)


def _kill_evaluator(scene: Scene) -> str | None:
    name = _holder(scene)
    if name is None:
        return None
    scene.lab.kill(name)
    return f"killed {name}, which held a lease"


def _kill_trainer(scene: Scene) -> str | None:
    """Kill the trainer and the child that trains, up to a few seconds after it got its job."""
    if _holder(scene, (TRAINER,)) is None:
        return None
    time.sleep(scene.source.uniform(0, 6))
    scene.lab.kill(TRAINER)
    return "killed the trainer, which held a lease"


def _kill_engine(scene: Scene) -> str | None:
    """Kill the worker process of the supervisor."""
    process = scene.lab.services.get("supervised")
    children = process.process.children() if process is not None and process.process else []
    if not children:
        return None
    for pid in children:
        Process(pid).kill()
    held = "supervised" in scene.observer.look().holders
    return f"killed the child of supervised, which held {'a' if held else 'no'} lease"


def _kill_aggregator(scene: Scene) -> str | None:
    """Kill the aggregator between two statements of a transaction that ends a job.

    A lock on the table of events blocks that transaction after it has written the job.
    """
    name, caught, killed = _aggregator(scene), False, False
    with (
        suppress(psycopg.Error),
        scene.lab.database.connect() as connection,
        connection.transaction(),
    ):
        connection.execute("LOCK TABLE events IN SHARE MODE")
        with suppress(TimeoutError):
            wait_until(lambda: _blocked(scene.observer), "a transaction", PATIENCE)
            caught = True
        scene.lab.kill(name)
        killed = True
    if not killed:  # the database was down
        scene.lab.kill(name)
    return f"killed the {name} {'in the middle of' if caught else 'outside'} a transaction"


def _aggregator(scene: Scene) -> str:
    """Return the name of an aggregator, a random one of two."""
    names = scene.lab.aggregators
    return names[0] if len(names) == 1 else scene.source.choice(names)


def _update_aggregator(scene: Scene) -> str | None:
    """Let an aggregator end itself and start again, as in a rolling update."""
    name = _aggregator(scene)
    service = scene.lab.services[name]
    if service.process is None:
        return None
    before = service.starts
    service.process.send_signal(signal.SIGTERM)
    wait_until(lambda: service.starts > before, f"{name} is started again", PATIENCE)
    return f"ended {name} by SIGTERM"


def _blocked(observer: Observer) -> bool:
    query = "SELECT 1 FROM pg_locks WHERE relation = 'events'::regclass AND NOT granted"
    return bool(observer.rows(query))


def _kill_calibrator(scene: Scene) -> str | None:
    scene.lab.kill("calibrator")
    return f"killed the calibrator while {scene.observer.look().state or 'submitting'}"


def _kill_sampler(scene: Scene) -> str | None:
    scene.lab.kill("sampler")
    return f"killed the sampler while {scene.observer.look().state or 'submitting'}"


def _pause_evaluator(scene: Scene) -> str | None:
    name = _holder(scene)
    if name is None:
        return None
    return _pause(scene, name, _EXPIRY_SECONDS + scene.source.uniform(0, 1))


def _pause_aggregator(scene: Scene) -> str | None:
    return _pause(scene, _aggregator(scene), scene.source.uniform(0.5, 1.5 * LEASE_SECONDS))


def _pause(scene: Scene, name: str, seconds: float) -> str:
    service = scene.lab.services[name]
    service.signal(signal.SIGSTOP)
    time.sleep(seconds)
    service.signal(signal.SIGCONT)
    return f"stopped {name} for {seconds:.1f} s"


def _flush_broker(scene: Scene) -> str | None:
    with suppress(redis.RedisError), scene.lab.broker.connect() as client:
        client.flushall()
        return "flushed the broker"
    return None


def _restart_broker(scene: Scene) -> str | None:
    loses = scene.source.random() < 0.5
    if loses:
        _flush_broker(scene)
    scene.lab.broker.end(scene.source.choice((signal.SIGKILL, signal.SIGTERM)))
    scene.lab.broker.wait()
    return f"restarted the broker, {'without' if loses else 'with'} its messages"


def _restart_database(scene: Scene) -> str | None:
    scene.lab.database.end(signal.SIGQUIT)
    scene.lab.database.wait()
    return "restarted the database (immediate shutdown)"


def _cut_link(scene: Scene) -> str | None:
    proxy, source = scene.lab.proxy, scene.source
    name = source.choice(sorted(proxy.links))
    mode = source.choice([mode for mode in Mode if mode is not Mode.PASS])
    seconds = source.uniform(0.2, 2 * LEASE_SECONDS)
    proxy.turn(name, mode)
    time.sleep(seconds)
    proxy.turn(name, Mode.PASS)
    return f"{mode} on {name} for {seconds:.1f} s"


def _cut_host(scene: Scene) -> str | None:
    """Cut off one evaluator's host, by its network namespace or its links."""
    lab, seconds = scene.lab, scene.source.uniform(1.0, 2 * LEASE_SECONDS)
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


def _jump_clock(scene: Scene) -> str | None:
    """Move the aggregator's clock, in half of the cases just after an evaluator was killed.

    Then no heartbeat corrects the deadline of its lease, which the earlier clock has set.
    """
    seconds = scene.source.choice((-1, 1)) * 10 ** scene.source.uniform(0.5, 4.0)
    killed = _kill_evaluator(scene) if scene.source.random() < 0.5 else None
    scene.lab.move_clock(seconds)
    moved = f"moved the aggregator's clock by {seconds:+.0f} s"
    return f"{killed}, and {moved}" if killed else moved


def _fill_disk(scene: Scene) -> str | None:
    """Fill the disk of the database, the broker's log, profiles and scale maps."""
    if not scene.lab.disk:
        return None
    seconds = scene.source.uniform(1.0, 5.0)
    host.fill(scene.lab.state)
    time.sleep(seconds)
    host.empty(scene.lab.state)
    scene.lab.database.wait()
    scene.lab.broker.wait()
    return f"filled the disk for {seconds:.1f} s"


def _holder(scene: Scene, workers: Collection[str] = ()) -> str | None:
    """Wait for a worker that holds a lease; return its name, or None if there is none.

    Args:
        scene: The lab.
        workers: Names of the workers that count; all workers by default.
    """
    wanted = workers or scene.lab.workers
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        sight = scene.observer.look()
        holders = [name for name in sight.holders if name in wanted]
        if holders or sight.ended:
            return scene.source.choice(holders) if holders else None
        time.sleep(0.02)
    return None


def _shuffle_messages(scene: Scene) -> str | None:
    return intruder.shuffle_messages(scene.lab, scene.observer, scene.source)


def _repeat_report(scene: Scene) -> str | None:
    return intruder.repeat_report(scene.lab, scene.observer, scene.source)


def _late_report(scene: Scene) -> str | None:
    return intruder.late_report(scene.lab, scene.observer)


def _leave_client(scene: Scene) -> str | None:
    """Let the client close its stream, which pauses its prediction."""
    if scene.observer.look().ended:
        return None
    scene.leaving.set()
    return "the client left, and came back"


INJECT: Mapping[Fault, Callable[[Scene], str | None]] = {
    Fault.KILL_EVALUATOR: _kill_evaluator,
    Fault.KILL_TRAINER: _kill_trainer,
    Fault.KILL_ENGINE: _kill_engine,
    Fault.KILL_AGGREGATOR: _kill_aggregator,
    Fault.KILL_CALIBRATOR: _kill_calibrator,
    Fault.KILL_SAMPLER: _kill_sampler,
    Fault.PAUSE_EVALUATOR: _pause_evaluator,
    Fault.PAUSE_AGGREGATOR: _pause_aggregator,
    Fault.FLUSH_BROKER: _flush_broker,
    Fault.RESTART_BROKER: _restart_broker,
    Fault.RESTART_DATABASE: _restart_database,
    Fault.CUT_LINK: _cut_link,
    Fault.CUT_HOST: _cut_host,
    Fault.JUMP_CLOCK: _jump_clock,
    Fault.FILL_DISK: _fill_disk,
    Fault.SHUFFLE_MESSAGES: _shuffle_messages,
    Fault.REPEAT_REPORT: _repeat_report,
    Fault.LATE_REPORT: _late_report,
    Fault.LEAVE_CLIENT: _leave_client,
    Fault.UPDATE_AGGREGATOR: _update_aggregator,
}
