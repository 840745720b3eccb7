"""A trainer's process that is killed in mid-training: the next one ends in the same student."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from modnorm.training import TrainingJob, train_in_child
from modnorm.wire.conversions import training_from_proto
from services.common.queue import TRAIN_QUEUE, make_celery, publish
from verification.labs.waiting import wait_until


def start(settings, target, redis_url):
    environment = {
        "MODNORM_AGGREGATOR_TARGET": target,
        "MODNORM_BIND_ADDRESS": "127.0.0.1:0",
        "MODNORM_BROKER_URL": redis_url,
        "MODNORM_CACHE_DIR": str(settings.cache_dir),
        "MODNORM_HEARTBEAT_SECONDS": "0.05",
        "MODNORM_TRAIN_DEVICE": "cpu",
        "MODNORM_TORCH_THREADS": "1",
    }
    command = [sys.executable, "-m", "services.trainer.server"]
    return subprocess.Popen(command, env=os.environ | environment)


def children(process):
    listed = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(child) for one in listed for child in one.read_text().split()]


def test_a_killed_trainer_goes_on(
    settings, target, redis_url, aggregator, add_job, served, tmp_path
):
    job, queue = add_job(), make_celery(redis_url)
    first = start(settings, target, redis_url)
    publish(queue, "a", TRAIN_QUEUE)
    wait_until(
        lambda: any(beat.training.step >= 3 for beat in aggregator.heartbeats), "three steps"
    )
    orphans = children(first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    wait_until(lambda: not any(map(is_running, orphans)), "the end of the child")
    assert not aggregator.reports
    aggregator.heartbeats.clear()
    second = start(settings, target, redis_url)
    publish(queue, "a", TRAIN_QUEUE)
    wait_until(lambda: aggregator.reports, "the report")
    second.terminate()
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
    status = Path(f"/proc/{process_id}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"
