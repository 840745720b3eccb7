"""A trainer's process that is killed in mid-training: the next one ends in the same student."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from modnorm.services.common.queue import TRAIN_QUEUE, make_celery, publish
from modnorm.training import TrainingJob, train_in_child
from modnorm.wire.conversions import training_from_proto
from verification.labs.waiting import wait_until


@pytest.fixture
def start(start_module, settings, target, redis_url):
    """Start a trainer's process."""
    environment = {
        "MODNORM_AGGREGATOR_TARGET": target,
        "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
        "MODNORM_BROKER_URL": redis_url,
        "MODNORM_CACHE_DIR": str(settings.cache_dir),
        "MODNORM_HEARTBEAT_SECONDS": "0.05",
        "MODNORM_TRAIN_DEVICE": "cpu",
        "MODNORM_TORCH_THREADS": "1",
    }
    return partial(
        start_module, "modnorm.services.trainer.server", environment=os.environ | environment
    )


def test_a_killed_trainer_goes_on(
    start, redis_url, aggregator, add_job, served, tmp_path, forked_trainings
):
    job, queue = add_job(), make_celery(redis_url)
    first = start().process
    publish(queue, "a", TRAIN_QUEUE)
    wait_until(
        lambda: any(beat.training.step >= 3 for beat in aggregator.heartbeats), "three steps"
    )
    orphans = first.children()
    assert orphans
    first.kill()
    first.wait()
    wait_until(lambda: not any(map(is_running, orphans)), "the end of the child")
    assert not aggregator.reports
    aggregator.heartbeats.clear()
    second = start().process
    publish(queue, "a", TRAIN_QUEUE)
    wait_until(lambda: aggregator.reports, "the report")
    second.send_signal(signal.SIGTERM)
    assert second.wait() == 0
    (report,) = aggregator.reports
    assert report.steps == 6
    assert served.path(report.student_digest) is not None
    undisturbed = TrainingJob(
        model="tiny-thicket",
        dataset=tmp_path / "examples.jsonl",
        training=training_from_proto(job.settings),
        seed=job.seed,
        directory=tmp_path / "undisturbed",
        device="cpu",
        threads=1,
    )
    assert train_in_child(undisturbed).digest == report.student_digest


def is_running(process_id):
    try:
        status = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may end before it is read
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
