"""Faulty workers and brokers: late, repeated and forged reports, repeated messages.

Reports bypass the proxies. Reports that must have no effect carry answers that would show in the
results if they were accepted.
"""

import random
import time
from collections.abc import Sequence
from contextlib import suppress

import grpc

from modnorm.errors import ModnormError, StaleLeaseError, UnavailableError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.services.aggregator.storage.codec import unpack_coefficients
from modnorm.services.common.channels import CHANNEL_OPTIONS
from modnorm.services.common.queue import QUEUE, announce_work, make_celery
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.common_pb2 import Descriptor
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.channel import open_channel
from modnorm.wire.connection import Credentials
from modnorm.wire.status import from_rpc_error
from verification.chaos.chaos_lab import LEASE_SECONDS, Lab
from verification.chaos.observer import Observer
from verification.labs.secured_worker import claimed
from verification.labs.waiting import HANG_SECONDS

NAME = "intruder"
CALL_SECONDS = HANG_SECONDS / 4
PATIENCE = HANG_SECONDS

_DONE = """
SELECT j.id, j.token, j.worker, j.answers_done,
       c.noise, c.seed, c.method, c.radius, c.scale_map_digest, c.coefficients
FROM jobs j JOIN candidates c ON c.experiment_id = j.experiment_id AND c.index = j.candidate
WHERE j.experiment_id = %s AND j.state = 'done' ORDER BY j.id
"""


def repeat_messages(lab: Lab, source: random.Random) -> str | None:
    """Tell the workers many times that there is work, and send them foreign messages."""
    app, count = make_celery(lab.broker.url), source.randint(2, 50)
    try:
        for _ in range(count):
            announce_work(app)
            app.send_task("of.another", declare=[app.amqp.queues[QUEUE].exchange], retry=False)
    except (UnavailableError, *app.connection_for_write().connection_errors):
        return "the broker was down"
    finally:
        app.close()
    return f"sent {count} messages without work, and as many of another task"


def repeat_report(lab: Lab, observer: Observer, source: random.Random) -> str | None:
    """Report a finished job again, under its lease and under the previous one.

    Under the same lease the report succeeds and is ignored, whatever its content.
    """
    reported = observer.rows(_DONE, observer.observe().experiment)
    if not reported:
        return None
    job, token, worker, count, *fields = source.choice(reported)
    descriptor = _descriptor(fields)
    rows = int(str(count))
    told = []
    for age in (0, 1):
        lease = messages.Lease(job_id=str(job), token=int(str(token)) - age)
        told.append(_send(lab, _forged(lease, descriptor, str(worker), rows)))
    if told[1] is None:
        lab.errors.append(f"a report of job {job} under an older lease was taken")
    return f"repeated a report with other answers: {_verdict(told[0])}, then {_verdict(told[1])}"


def late_report(lab: Lab, observer: Observer) -> str | None:
    """Claim a job, send no heartbeat, and report after another worker has claimed it."""
    job = _claim(lab, observer)
    if job is None:
        return None
    descriptor = _resolve(lab, job)
    rows = observer.rows(
        "SELECT selection_rows, heldout_rows FROM experiments WHERE id = %s", job.experiment_id
    )
    if descriptor is None or not rows or not _taken_over(observer, job.lease.job_id):
        return "claimed a job and let it go"
    count = rows[0][0 if job.split == messages.SPLIT_SELECTION else 1]
    verdict = _send(lab, _forged(job.lease, descriptor, NAME, int(str(count))))
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
    deadline = time.monotonic() + LEASE_SECONDS + PATIENCE
    while time.monotonic() < deadline:
        query = "SELECT worker FROM jobs WHERE id = %s AND state IN ('leased', 'done')"
        if any(worker != NAME for (worker,) in observer.rows(query, job)):
            return True
        time.sleep(0.02)
    return False


def _resolve(lab: Lab, job: messages.Job) -> Descriptor | None:
    """Return the descriptor of a job with coefficients that fit its scale map."""
    if job.descriptor.coefficients:
        return job.descriptor
    request = messages.GetScaleMapRequest(digest=job.descriptor.scale_map_digest)
    with suppress(grpc.RpcError), _channel(lab) as channel:
        text = JobServiceStub(channel).GetScaleMap(request, timeout=CALL_SECONDS).json
        job.descriptor.coefficients.extend(0.5 for _ in ScaleMap.from_json(text).active)
        return job.descriptor
    return None


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
        answers=[
            messages.Answer(row=row, completion="forged", reward=1e6, vote="forged", tokens=1)
            for row in range(rows)
        ],
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
