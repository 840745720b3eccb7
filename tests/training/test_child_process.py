"""A training in a child process: its student, its errors, and its end."""

import json
import subprocess

import pytest

from modnorm.errors import PreconditionError
from modnorm.training import child_process, train_in_child
from modnorm.training.job import STATE
from tests.faults import error_at


def test_an_interrupted_child_ends_and_leaves_its_checkpoints(make_job, forked_trainings):
    def interrupt(step, _steps):
        if step == 3:
            raise KeyboardInterrupt

    job = make_job()
    with pytest.raises(KeyboardInterrupt):
        train_in_child(job, interrupt)
    assert list((job.directory / STATE).glob("checkpoint-2/complete"))


def test_an_error_keeps_its_kind_and_its_field(make_job, forked_trainings):
    with error_at("model.name", "no-such-model"):
        train_in_child(make_job(model="no-such-model"))


def test_a_child_ends_with_its_parent(make_job, forks, tmp_path):
    file = tmp_path / "job.json"
    file.write_text(make_job().model_dump_json())
    command = [*forks.command(child_process.MODULE), str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert "progress" in json.loads(child.stdout.readline())
        child.stdin.close()
        assert child.wait(60) == 1


def test_the_missing_extra_is_named(make_job, monkeypatch):
    monkeypatch.setattr("modnorm.training.job.find_spec", lambda name: None)
    with pytest.raises(PreconditionError) as caught:
        train_in_child(make_job())
    assert "'.[train]'" in str(caught.value.remedy)
