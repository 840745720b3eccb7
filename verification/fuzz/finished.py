"""Experiments of a lab without evaluators, answered by hand until they have what is wanted."""

import time
from collections.abc import Sequence

import grpc
from sqlalchemy import create_engine, text

from modnorm.v1 import evaluation_pb2 as messages
from verification.labs.secured_lab import SecuredLab
from verification.labs.secured_worker import claimed, report_of, reported
from verification.labs.waiting import HANG_SECONDS

_PENDING = """
SELECT j.id FROM jobs j JOIN experiments e ON e.id = j.experiment_id
WHERE (e.id = :id OR e.parent_id = :id) AND j.state = 'pending' AND j.split <> 'training'
ORDER BY j.id
"""
_TRAINING = "SELECT id FROM jobs WHERE experiment_id = :id AND split = 'training'"
_SUCCEEDED = "SELECT id FROM experiments WHERE id = :id AND state = 'SUCCEEDED'"


def answer_until_finished(lab: SecuredLab, channel: grpc.Channel, experiment_id: str) -> None:
    """Answer all jobs of an experiment, as a worker would.

    Raises:
        TimeoutError: it does not succeed in time.
    """
    _answer_until(lab, channel, experiment_id, _SUCCEEDED)


def answer_until_training(lab: SecuredLab, channel: grpc.Channel, experiment_id: str) -> str:
    """Answer the jobs of a distillation up to its training; return the id of that job.

    Raises:
        TimeoutError: there is no such job in time.
    """
    return _answer_until(lab, channel, experiment_id, _TRAINING)[0]


def _answer_until(
    lab: SecuredLab, channel: grpc.Channel, experiment_id: str, query: str
) -> Sequence[str]:
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        if found := find_ids(lab, query, experiment_id):
            return found
        for job_id in find_ids(lab, _PENDING, experiment_id):
            if (job := claimed(channel, job_id)) is not None:
                reported(channel, report_of(channel, job, right=True))
        time.sleep(0.05)
    raise TimeoutError(f"experiment {experiment_id} does not go on")


def find_ids(lab: SecuredLab, query: str, experiment_id: str) -> Sequence[str]:
    """Return the ids that a query of the database finds by the id of an experiment."""
    engine = create_engine(lab.database_url)
    with engine.connect() as connection:
        found = [str(row[0]) for row in connection.execute(text(query), {"id": experiment_id})]
    engine.dispose()
    return found


def training_calls(lease: messages.Lease, student: str) -> Sequence[messages.WorkRequest]:
    """Return messages of a trainer with a lease: a step, and the result."""
    step = messages.TrainProgress(step=1, steps=2, loss=1.5, learning_rate=0.1, tokens=10)
    beat = messages.HeartbeatRequest(lease=lease, training=step)
    report = messages.TrainReport(
        lease=lease,
        worker="by-hand",
        student_digest=student,
        steps=2,
        examples=3,
        tokens=20,
        flops=1e6,
        seconds=1.0,
        losses=[messages.LossRecord(step=1, loss=1.5, learning_rate=0.1)],
        environment={"device": "cpu"},
    )
    return (
        messages.WorkRequest(calls=[messages.Call(heartbeat=beat)]),
        messages.WorkRequest(calls=[messages.Call(trained=report)]),
    )
