"""The faults. A function with the name of a fault injects it and returns a description.

A fault without effect, for example after the end of the experiment, returns None. Reports of
faulty workers bypass the proxies; those that must have no effect carry answers that would show in
the results if they were accepted.
"""

import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import grpc
import psycopg
import redis

from modnorm.errors import ModnormError, StaleLeaseError, UnavailableError
from modnorm.search.answers import Answer
from modnorm.services.aggregator.storage.tables import unpack_coefficients
from modnorm.services.common.channels import CHANNEL_OPTIONS
from modnorm.services.common.queue import QUEUE, announce_work, make_celery
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.common_pb2 import Descriptor
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.answer_sheets import pack_answers
from modnorm.wire.channel import open_channel
from modnorm.wire.connection import Credentials
from modnorm.wire.status import from_rpc_error
from verification.chaos.lab import LEASE_SECONDS, REAP_SECONDS, Lab, empty, fill
from verification.chaos.outcome import Observer
from verification.chaos.proxy import Mode
from verification.labs.forked import Process
from verification.labs.secured_lab import claimed, report_of
from verification.labs.waiting import HANG_SECONDS, wait_until

PATIENCE = HANG_SECONDS
"""Seconds to wait for the right moment of a fault: the length of several jobs."""
NAME = "intruder"
_FORGED_REWARD = 1e6
CALL_SECONDS = HANG_SECONDS / 4

_DONE = """
SELECT j.id, j.token, j.worker, j.answers_done,
       c.noise, c.seed, c.method, c.radius, c.scale_map_digest, c.coefficients
FROM jobs j JOIN candidates c ON c.experiment_id = j.experiment_id AND c.index = j.candidate
WHERE j.experiment_id = %s AND j.state = 'done' ORDER BY j.id
"""
_BLOCKED = "SELECT 1 FROM pg_locks WHERE relation = 'events'::regclass AND NOT granted"
_EXPIRY_SECONDS = LEASE_SECONDS + 2 * REAP_SECONDS + 0.5
"""Seconds without a heartbeat after which a lease has expired and its end is stored."""


@dataclass(frozen=True)
class FaultContext:
    """The lab, observer and randomness of a fault."""

    lab: Lab
    observer: Observer
    source: random.Random


def kill_evaluator(context: FaultContext) -> str | None:
    """Kill an evaluator that holds a lease."""
    name = _holder(context)
    if name is None:
        return None
    context.lab.kill(name)
    return f"killed {name}, which held a lease"


def kill_engine(context: FaultContext) -> str | None:
    """Kill the worker process of the supervisor."""
    process = context.lab.services.get("supervised")
    children = process.process.children() if process is not None and process.process else []
    if not children:
        return None
    for pid in children:
        Process(pid).kill()
    held = "supervised" in context.observer.observe().holders
    return f"killed the child of supervised, which held {'a' if held else 'no'} lease"


def kill_aggregator(context: FaultContext) -> str | None:
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
        # A restart of the database ends the lock, and then nothing blocks any more.
        wait_until(
            lambda: context.observer.rows(_BLOCKED) or context.observer.observe().ended,
            "a blocked transaction",
            PATIENCE,
        )
        caught = bool(context.observer.rows(_BLOCKED))
        context.lab.kill("aggregator")
        killed = True
    if not killed:  # the database was down
        context.lab.kill("aggregator")
    return f"killed the aggregator {'in the middle of' if caught else 'outside'} a transaction"


def update_aggregator(context: FaultContext) -> str | None:
    """Let the aggregator end itself and start again, as in an update."""
    service = context.lab.services["aggregator"]
    if service.process is None:
        return None
    before = service.starts
    service.process.send_signal(signal.SIGTERM)
    wait_until(lambda: service.starts > before, "the aggregator is started again", PATIENCE)
    return "ended the aggregator by SIGTERM"


def _kill_service(name: str, context: FaultContext) -> str:
    context.lab.kill(name)
    return f"killed the {name} while {context.observer.observe().state or 'submitting'}"


kill_calibrator = partial(_kill_service, "calibrator")
kill_sampler = partial(_kill_service, "sampler")


def pause_evaluator(context: FaultContext) -> str | None:
    """Stop an evaluator until its lease has expired."""
    name = _holder(context)
    if name is None:
        return None
    return _pause(context, name, _EXPIRY_SECONDS + context.source.uniform(0, 1))


def pause_aggregator(context: FaultContext) -> str | None:
    """Stop the aggregator for up to one and a half leases."""
    return _pause(context, "aggregator", context.source.uniform(0.5, 1.5 * LEASE_SECONDS))


def _pause(context: FaultContext, name: str, seconds: float) -> str:
    service = context.lab.services[name]
    service.signal(signal.SIGSTOP)
    time.sleep(seconds)
    service.signal(signal.SIGCONT)
    return f"stopped {name} for {seconds:.1f} s"


def flush_broker(context: FaultContext) -> str | None:
    """Delete all messages."""
    with suppress(redis.RedisError), context.lab.broker.connect() as client:
        client.flushall()
        return "flushed the broker"
    return None


def restart_broker(context: FaultContext) -> str | None:
    """Restart the broker with or without its messages."""
    loses = context.source.random() < 0.5
    if loses:
        flush_broker(context)
    context.lab.broker.end(context.source.choice((signal.SIGKILL, signal.SIGTERM)))
    context.lab.broker.wait()
    return f"restarted the broker, {'without' if loses else 'with'} its messages"


def restart_database(context: FaultContext) -> str | None:
    """Restart the database without a shutdown."""
    context.lab.database.end(signal.SIGQUIT)
    context.lab.database.wait()
    return "restarted the database (immediate shutdown)"


def cut_link(context: FaultContext) -> str | None:
    """Cut one link for some seconds."""
    proxy, source = context.lab.proxy, context.source
    name = source.choice(sorted(proxy.links))
    mode = source.choice([mode for mode in Mode if mode is not Mode.PASS])
    seconds = source.uniform(0.2, 2 * LEASE_SECONDS)
    proxy.turn(name, mode)
    time.sleep(seconds)
    proxy.turn(name, Mode.PASS)
    return f"{mode} on {name} for {seconds:.1f} s"


def cut_host(context: FaultContext) -> str | None:
    """Stall all links of one evaluator, as if its host were cut off."""
    proxy, seconds = context.lab.proxy, context.source.uniform(1.0, 2 * LEASE_SECONDS)
    names = [name for name in proxy.links if name.startswith("far-")]
    for name in names:
        proxy.turn(name, Mode.STALL)
    time.sleep(seconds)
    for name in names:
        proxy.turn(name, Mode.PASS)
    return f"cut the links of far for {seconds:.1f} s"


def jump_clock(context: FaultContext) -> str | None:
    """Move the aggregator's clock, in half of the cases just after an evaluator was killed.

    Then no heartbeat corrects the deadline of its lease, which the earlier clock has set.
    """
    seconds = context.source.choice((-1, 1)) * 10 ** context.source.uniform(0.5, 4.0)
    killed = kill_evaluator(context) if context.source.random() < 0.5 else None
    context.lab.move_clock(seconds)
    moved = f"moved the aggregator's clock by {seconds:+.0f} s"
    return f"{killed}, and {moved}" if killed else moved


def fill_disk(context: FaultContext) -> str | None:
    """Fill the disk of the database, the broker's log, profiles and scale maps."""
    if not context.lab.disk:
        return None
    seconds = context.source.uniform(1.0, 5.0)
    fill(context.lab.state)
    time.sleep(seconds)
    empty(context.lab.state)
    context.lab.database.wait()
    context.lab.broker.wait()
    return f"filled the disk for {seconds:.1f} s"


def _holder(context: FaultContext) -> str | None:
    """Wait for a worker that holds a lease; return its name, or None if there is none."""
    found: list[str] = []

    def is_over() -> bool:
        observation = context.observer.observe()
        found[:] = [name for name in observation.holders if name in context.lab.workers]
        return bool(found) or observation.ended

    with suppress(TimeoutError):
        wait_until(is_over, "a lease", PATIENCE, pause=0.02)
    return context.source.choice(found) if found else None


def repeat_messages(context: FaultContext) -> str | None:
    """Tell the workers many times that there is work, and send them foreign messages."""
    app, count = make_celery(context.lab.broker.url), context.source.randint(2, 50)
    try:
        for _ in range(count):
            announce_work(app)
            app.send_task("of.another", declare=[app.amqp.queues[QUEUE].exchange], retry=False)
    except (UnavailableError, *app.connection_for_write().connection_errors):
        return "the broker was down"
    finally:
        app.close()
    return f"sent {count} messages without work, and as many of another task"


def repeat_report(context: FaultContext) -> str | None:
    """Report a finished job again, under its lease and under the previous one.

    Under the same lease the report succeeds and is ignored, whatever its content.
    """
    lab, observer = context.lab, context.observer
    reported = observer.rows(_DONE, observer.observe().experiment)
    if not reported:
        return None
    job, token, worker, count, *fields = context.source.choice(reported)
    descriptor = _descriptor(fields)
    rows = int(str(count))
    told = []
    for age in (0, 1):
        lease = messages.Lease(job_id=str(job), token=int(str(token)) - age)
        told.append(_send(lab, _forged(lease, descriptor, str(worker), rows)))
    if told[1] is None:
        lab.errors.append(f"a report of job {job} under an older lease was taken")
    return f"repeated a report with other answers: {_verdict(told[0])}, then {_verdict(told[1])}"


def late_report(context: FaultContext) -> str | None:
    """Claim a job, send no heartbeat, and report after another worker has claimed it."""
    lab, observer = context.lab, context.observer
    job = _claim(lab, observer)
    if job is None:
        return None
    report = None
    with suppress(grpc.RpcError), _channel(lab) as channel:
        report = report_of(channel, job, reward=_FORGED_REWARD)
    if report is None or not _taken_over(observer, job.lease.job_id):
        return "claimed a job and let it go"
    report.worker = NAME
    verdict = _send(lab, report)
    if verdict is None:
        lab.errors.append(f"a late report of job {job.lease.job_id} was taken")
    return f"reported a job late: {_verdict(verdict)}"


def _channel(lab: Lab) -> grpc.Channel:
    return open_channel(lab.server, Credentials(), CHANNEL_OPTIONS)


def _claim(lab: Lab, observer: Observer) -> messages.Job | None:
    """Lease any pending job."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not observer.observe().ended:
        with suppress(grpc.RpcError, ModnormError), _channel(lab) as channel:
            leased = claimed(channel, "", NAME, seconds=CALL_SECONDS)
            if leased is not None:
                return leased
        time.sleep(0.1)
    return None


def _taken_over(observer: Observer, job: str) -> bool:
    """Wait until another worker has claimed a job."""
    query = "SELECT 1 FROM jobs WHERE id = %s AND state IN ('leased', 'done') AND worker <> %s"
    with suppress(TimeoutError):
        taken = partial(observer.rows, query, job, NAME)
        wait_until(taken, "another claim", LEASE_SECONDS + PATIENCE, pause=0.02)
        return True
    return False


def _descriptor(fields: Sequence[object]) -> Descriptor:
    noise, seed, method, radius, scale_map, coefficients = fields
    return Descriptor(
        noise=str(noise),
        seed=int(str(seed)),
        method=str(method),
        radius=float(str(radius)),
        scale_map_digest=str(scale_map),
        coefficients=unpack_coefficients(coefficients) if isinstance(coefficients, bytes) else (),
    )


def _forged(
    lease: messages.Lease, descriptor: Descriptor, worker: str, rows: int
) -> messages.ReportJobRequest:
    """Return a report with invented answers."""
    return messages.ReportJobRequest(
        lease=lease,
        descriptor=descriptor,
        worker=worker,
        answers=pack_answers(
            Answer(
                row=row,
                completion="forged",
                vote="forged",
                reward=_FORGED_REWARD,
                correct=False,
                tokens=1,
                truncated=False,
            )
            for row in range(rows)
        ),
    )


def _send(lab: Lab, report: messages.ReportJobRequest) -> ModnormError | None:
    """Send a report until the aggregator answers; return the error of a refusal, if any."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with _channel(lab) as channel:
                JobServiceStub(channel).ReportJob(report, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            met = from_rpc_error(error)
            if isinstance(met, StaleLeaseError) or time.monotonic() > deadline:
                return met
        else:
            return None
        time.sleep(0.2)


def _verdict(refusal: ModnormError | None) -> str:
    return "thanked" if refusal is None else type(refusal).__name__
