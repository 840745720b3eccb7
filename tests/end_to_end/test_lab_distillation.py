"""A distillation in a lab of separate processes, each killed once."""

import json
import random
import threading
from contextlib import ExitStack

import psycopg
import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.tasks.puzzles import main as write_puzzles
from verification.labs.waiting import wait_until

pytestmark = pytest.mark.integration

SEED = 25


@pytest.fixture(scope="module")
def spec_file(write_spec, tmp_path_factory):
    rows = tmp_path_factory.mktemp("rows") / "training.jsonl"
    write_puzzles([str(rows), "--seed", "5", "--count", "12"])
    task = {
        "name": "countdown",
        "selection": {"source": "bundled:countdown-selection", "limit": 4},
        "heldout": {"source": "bundled:countdown-heldout", "limit": 4},
        "max_tokens": 64,
    }
    return write_spec(
        "distilled in a lab",
        task=task,
        method={"name": "randopt", "radius": 0.006},
        population={"size": 3, "ensemble_sizes": [1, 2]},
        distillation={
            "rounds": 1,
            "rows": str(rows),
            "development": {"source": "bundled:countdown-development", "limit": 4},
            "harvest": {"samples": 2, "keep": 2},
            "training": {
                "rank": 4,
                "learning_rate": 0.001,
                "batch_size": 2,
                "epochs": 8,
                "checkpoint_steps": 2,
            },
        },
    )


def rounds_of(directory):
    return json.loads((directory / "distillation.json").read_text())["rounds"]


def test_killed_processes_change_neither_dataset_nor_student(
    lab, client, modnorm, spec_file, tmp_path, database_url
):
    own = {
        name: {"MODNORM_STUDENT_DIR": str(tmp_path / name)}
        for name in ("victim", "survivor", "trainer-1", "trainer-2")
    }
    order = random.Random(SEED)
    with ExitStack() as stack:
        trainings = {"MODNORM_TRAIN_DIR": str(tmp_path / "trainings")}
        trainer = stack.enter_context(
            lab.process("trainer", "127.0.0.1:0", "-1", **own["trainer-1"], **trainings)
        )
        victim = stack.enter_context(lab.evaluator("victim", **own["victim"]))
        stack.enter_context(lab.evaluator("survivor", **own["survivor"]))
        ended = modnorm("submit", spec_file, "--server", lab.server, "--json")
        distillation = json.loads(ended.stdout)["id"]
        messages = watched(client, distillation)
        wait_until(lambda: harvested(database_url) > 0, "the first answers")
        victim.kill()
        point = 1 + order.randrange(2)
        wait_until(lambda: harvested(database_url) > point, "more answers")
        lab.kill_aggregator()
        wait_for(messages, "training step", order.randrange(2))
        assert not any("is trained" in message for message in messages)
        trainer.kill()
        stack.enter_context(
            lab.process("trainer", "127.0.0.1:0", "-2", **own["trainer-2"], **trainings)
        )
        modnorm("watch", distillation, "--server", lab.server)
    directory, whole = tmp_path / "fetched", tmp_path / "whole"
    modnorm("show", distillation, "--server", lab.server, "--out", directory)
    modnorm("run", spec_file, "--out", whole)
    for name in ("dataset", "student", "development", "heldout"):
        pairs = zip(rounds_of(whole), rounds_of(directory), strict=True)
        assert all(one[name] == other[name] for one, other in pairs), name
    model = tmp_path / "model"
    exported = modnorm("export", distillation, "--server", lab.server, "--out", model, "--json")
    assert json.loads(exported.stdout)["student"] == resolve_checkpoint(str(model)).digest


def harvested(database_url):
    """Return the number of finished jobs on training rows."""
    query = "SELECT id FROM jobs WHERE split = 'harvest' AND state = 'done'"
    with psycopg.connect(database_url) as connection:
        return len(connection.execute(query).fetchall())


def watched(client, distillation):
    """Return the messages of a distillation's events, to which a thread adds new ones."""
    messages: list[str] = []

    def read():
        messages.extend(event.message for event in client.watch(distillation))

    threading.Thread(target=read, daemon=True).start()
    return messages


def wait_for(messages, text, skipped):
    """Wait for an event after a number of others with the same text."""
    wait_until(
        lambda: sum(text in message for message in messages) > skipped or "finished" in messages,
        text,
    )
