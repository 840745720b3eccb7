"""Trainings from claim to report, over real gRPC, by a real child process."""

import os
import signal
import threading
from importlib.metadata import version
from pathlib import Path

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import NotFoundError, StaleLeaseError
from modnorm.services.common.students import Students, list_files
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.v1 import common_pb2
from modnorm.v1 import evaluation_pb2 as messages
from verification.labs.waiting import wait_until


def directories(settings):
    return list(settings.trainings.glob("*"))


def last_step(aggregator):
    return max((beat.training.step for beat in aggregator.heartbeats), default=0)


def run_until_step(runner, aggregator, step, then):
    """Run job `a` in a thread; call `then` once a heartbeat carries the step."""
    thread = threading.Thread(target=runner.run, args=("a",))
    thread.start()
    wait_until(lambda: last_step(aggregator) >= step, f"step {step}", pause=0.02)
    then()
    thread.join()


def training_process():
    """Return the id of the child that trains."""
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            if b"modnorm.training" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError("no training runs")


def test_a_killed_and_released_training_ends_in_the_student_of_an_undisturbed_one(
    make_runner, aggregator, add_job, settings, served
):
    add_job("whole", dataset_digest=add_job().dataset_digest)
    make_runner(Shutdown(5.0)).run("whole")
    (whole,) = aggregator.reports
    assert not aggregator.failures
    assert directories(settings) == []  # nothing is kept of a reported job
    directory = served.require(whole.student_digest)
    assert resolve_checkpoint(str(directory)).digest == whole.student_digest
    assert [each.step for each in whole.losses] == [1, 2, 3, 4, 5, 6]
    assert (whole.steps, whole.examples, whole.too_long) == (6, 12, 0)
    assert whole.environment["device"] == "cpu"
    assert whole.environment["modnorm"] == version("modnorm")
    assert last_step(aggregator) >= 1
    aggregator.heartbeats.clear()

    killed = make_runner(Shutdown(5.0))
    run_until_step(killed, aggregator, 3, lambda: os.kill(training_process(), signal.SIGKILL))
    assert aggregator.failures[-1].kind == messages.FAILURE_KIND_INFRASTRUCTURE
    assert "-9" in aggregator.failures[-1].reason
    assert len(directories(settings)) == 1

    aggregator.heartbeats.clear()
    stopping = Shutdown(5.0)
    run_until_step(make_runner(stopping), aggregator, 1, stopping.request)
    if len(aggregator.reports) == 1:  # the last steps may be faster than the stop
        assert aggregator.failures[-1].kind == messages.FAILURE_KIND_RELEASED
        make_runner(Shutdown(5.0)).run("a")
    again = aggregator.reports[-1]
    assert again.student_digest == whole.student_digest
    assert list(again.losses) == list(whole.losses)
    assert (again.tokens, again.flops) == (whole.tokens, whole.flops)


def test_a_lost_lease_ends_the_training_and_keeps_its_checkpoints(
    make_runner, aggregator, add_job, settings
):
    aggregator.end = StaleLeaseError("another trainer has it")
    add_job()
    make_runner(Shutdown(5.0)).run("a")
    assert not aggregator.reports
    assert not aggregator.failures
    assert len(directories(settings)) == 1


def test_a_cancelled_training_of_a_student_leaves_that_student_alone(
    make_runner, aggregator, add_job, served, settings
):
    base = resolve_checkpoint("tiny-thicket")
    Students(settings.students).root.mkdir(parents=True)
    for file in list_files(base.directory):
        served.write(base.digest, file, [(base.directory / file.name).read_bytes()])
    served.complete(base.digest)
    add_job(model=common_pb2.ModelRef(name=f"student:{base.digest}"))
    aggregator.cancel_from = 1
    make_runner(Shutdown(5.0)).run("a")
    assert last_step(aggregator) >= 1
    assert not aggregator.reports
    assert not aggregator.failures
    assert directories(settings) == []
    assert Students(settings.students).path(base.digest) is not None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_digest": "0" * 64}, "has digest"),
        ({"model": common_pb2.ModelRef(name="./nowhere")}, "no directory"),
        ({"settings": common_pb2.TrainingSpec(method="qlora")}, "training.method"),
    ],
)
def test_a_job_that_no_trainer_can_do_is_fatal(make_runner, aggregator, add_job, changes, reason):
    add_job(**changes)
    make_runner(Shutdown(5.0)).run("a")
    (failure,) = aggregator.failures
    assert failure.kind == messages.FAILURE_KIND_FATAL
    assert reason in failure.reason


def test_a_student_that_was_removed_before_its_report_is_sent_again(
    make_runner, aggregator, add_job
):
    add_job()
    aggregator.refusal = NotFoundError("there is no such student")
    runner = make_runner(Shutdown(5.0))
    runner.run("a")
    (failure,) = aggregator.failures
    assert failure.kind == messages.FAILURE_KIND_INFRASTRUCTURE
    assert "has to be sent again" in failure.reason
    aggregator.refusal = None
    runner.run("a")
    assert len(aggregator.reports) == 1


def test_a_dataset_with_other_bytes_is_an_outage(make_runner, aggregator, add_job):
    add_job(dataset_digest="0" * 64)
    make_runner(Shutdown(5.0)).run("a")
    (failure,) = aggregator.failures
    assert failure.kind == messages.FAILURE_KIND_INFRASTRUCTURE
    assert "not received whole" in failure.reason


def test_a_job_that_needs_no_work_is_ignored(make_runner, aggregator, settings):
    make_runner(Shutdown(5.0)).run("unknown")
    assert not aggregator.failures
    assert directories(settings) == []
