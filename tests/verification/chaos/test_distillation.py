"""A distillation in a lab whose trainer, evaluators and aggregator are killed at seeded points."""

import random
import time
import uuid
from contextlib import contextmanager

import pytest

from modnorm.client.client import Client
from modnorm.spec import parse_spec
from verification.chaos.chaos_lab import TRAINER, open_lab, working_folder
from verification.chaos.observer import Observer
from verification.labs.waiting import wait_until

SEED = 25
DEVELOPMENT = {"source": "bundled:countdown-development"}


@contextmanager
def trained_lab():
    """Yield a new lab with a trainer: a lab reuses every finished training of equal content."""
    with (
        working_folder() as folder,
        open_lab(folder, supervised=False, trains=True) as running,
    ):
        yield running


def make_spec():
    return parse_spec(
        {
            "name": "distilled",
            "model": "tiny-thicket",
            "task": {
                "name": "countdown",
                "selection": {"source": "bundled:countdown-selection", "limit": 4},
                "heldout": {"source": "bundled:countdown-heldout", "limit": 4},
                "max_tokens": 64,
            },
            "method": {"name": "randopt", "radius": 0.006},
            "population": {"size": 3, "ensemble_sizes": [1, 2]},
            "failures": {"max_attempts": 100},
            "distillation": {
                "rounds": 1,
                "rows": {**DEVELOPMENT, "offset": 4, "limit": 16},
                "development": {**DEVELOPMENT, "limit": 4},
                "harvest": {"samples": 2, "keep": 2},
                "training": {
                    "rank": 4,
                    "learning_rate": 0.001,
                    "batch_size": 4,
                    "checkpoint_steps": 1,
                },
            },
        }
    )


class Distillation:
    """A submitted distillation, observed in the database."""

    def __init__(self, lab, spec):
        request = uuid.uuid4().hex
        self._observer = Observer(lab.database, request)
        with Client(lab.server) as client:
            self._id = client.submit(spec, request).id

    def is_in(self, phase):
        query = "SELECT 1 FROM rounds WHERE experiment_id = %s AND index = 1 AND phase = %s"
        return bool(self._observer.rows(query, self._id, phase)) or self.has_ended()

    def is_trained(self):
        query = "SELECT 1 FROM jobs WHERE worker = %s AND state = 'leased'"
        return bool(self._observer.rows(query, TRAINER)) or self.has_ended()

    def has_ended(self):
        return self._observer.look().ended

    def outcome(self):
        """Return state and error, then dataset and student of each round, once it has ended."""
        wait_until(self.has_ended, "the end of the distillation")
        query = "SELECT state, error FROM experiments WHERE id = %s"
        ended = self._observer.rows(query, self._id)
        query = (
            "SELECT index, dataset_digest, student_digest FROM rounds "
            "WHERE experiment_id = %s ORDER BY index"
        )
        rounds = self._observer.rows(query, self._id)
        self._observer.close()
        return ended, rounds


def undisturbed():
    with trained_lab() as lab:
        return Distillation(lab, make_spec()).outcome()


@pytest.mark.integration
def test_kills_change_neither_the_dataset_nor_the_student():
    expected = undisturbed()
    assert expected[0] == [("SUCCEEDED", "")]
    chance = random.Random(SEED)
    with trained_lab() as lab:
        killed = Distillation(lab, make_spec())
        wait_until(lambda: killed.is_in("HARVESTING"), "the harvest")
        time.sleep(2 * chance.random())
        for evaluator in ("near", "far"):
            lab.kill(evaluator)
        wait_until(killed.is_trained, "the training")
        time.sleep(6 * chance.random())
        assert not killed.has_ended()
        lab.kill(TRAINER)
        time.sleep(chance.random())
        lab.kill("aggregator")
        assert killed.outcome() == expected
        for name in ("near", "far", TRAINER, "aggregator"):
            assert lab.services[name].starts > 1
