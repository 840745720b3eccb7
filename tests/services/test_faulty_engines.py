"""Experiments with an engine that runs out of memory, produces NaN, or lacks memory for a model.

A real lab and the real model; faults are injected at the engine protocol.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from modnorm.client.client import Client
from modnorm.client.connection import get_experiment
from modnorm.engines import load_engine
from modnorm.engines.protocol import engine_failures
from modnorm.errors import CandidateError, DoesNotFitError
from modnorm.services.embedded import start
from modnorm.v1 import experiment_pb2
from tests.delegating import Delegating, engines_from
from verification.fuzz.stored import small_spec
from verification.labs.bundled_tasks import bundled_task

SUCCEEDED = experiment_pb2.EXPERIMENT_STATE_SUCCEEDED
FAILED = experiment_pb2.EXPERIMENT_STATE_FAILED
THIRD = 3
"""Candidate of an experiment with faults; the base is the first."""


def out_of_memory():
    with engine_failures("decoding"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def not_finite():
    raise CandidateError("the candidate's logits are not finite")


def no_room():
    raise DoesNotFitError("the model does not fit", remedy="lower MODNORM_ENGINES_PER_GPU")


class Faults:
    """Planned faults, and loaded engines."""

    def __init__(self):
        self.begin()

    def begin(self, at_load=None, of_third=None, *, times=1):
        """Plan the faults of an experiment."""
        self.at_load, self.of_third, self.times = at_load, of_third, times
        self.candidates = itertools.count(1)
        self.loads = 0

    def load(self, name, checkpoint, settings):
        self.loads += 1
        if self.at_load:
            self.at_load()
        return FaultyEngine(load_engine(name, checkpoint, settings), self)


class FaultyEngine(Delegating):
    """An engine whose candidates may fail after their first answer."""

    def __init__(self, engine, faults):
        super().__init__(engine)
        self._faults = faults
        self._fault = None

    @contextmanager
    def candidate(self, descriptor, scale_map):
        faults = self._faults
        is_hit = THIRD <= next(faults.candidates) < THIRD + faults.times
        with self._inner.candidate(descriptor, scale_map) as resolved:
            self._fault = faults.of_third if is_hit else None
            try:
                yield resolved
            finally:
                self._fault = None

    def generate(self, prompts, limits, poll=None):
        for completion in self._inner.generate(prompts, limits, poll=poll):
            yield completion
            if self._fault:
                self._fault()


@pytest.fixture(scope="module")
def faults():
    return Faults()


@pytest.fixture(scope="module")
def client(tmp_path_factory, faults) -> Iterator[Client]:
    state = tmp_path_factory.mktemp("lab")
    with (
        engines_from(faults.load),
        start(state / "state", cache=state / "cache") as lab,
        Client(lab.target, credentials=lab.credentials) as made,
    ):
        yield made


def run(client, name, **failures):
    """Run an experiment to its end; return it, and the run if it succeeded."""
    spec = small_spec(
        name=name,
        task=bundled_task("countdown", selection=2, heldout=2, max_tokens=6),
        method={"name": "randopt", "sigma": 0.005},
        population={"size": 4},
        failures=failures,
        reuse=False,
    )
    experiment = client.submit(spec)
    for _ in client.watch(experiment.id):
        pass
    ended = get_experiment(client, experiment.id)
    return ended, client.run(ended.id) if ended.state == SUCCEEDED else None


def rewards(found):
    return {one.index: one.selection_reward for one in found.candidates}


def attempts(found):
    """The candidates in `timings.json`."""
    return found.timings()["candidates"]


@pytest.fixture(scope="module")
def undisturbed(client, faults):
    faults.begin()
    experiment, found = run(client, "undisturbed")
    assert experiment.state == SUCCEEDED
    return rewards(found)


def test_a_candidate_that_ran_out_of_memory_is_redone_alike_on_a_new_engine(
    client, faults, undisturbed
):
    faults.begin(of_third=out_of_memory)
    experiment, found = run(client, "out of memory once")
    assert experiment.state == SUCCEEDED
    assert rewards(found) == undisturbed
    assert sorted(one["attempts"] for one in attempts(found)) == [1, 1, 1, 2]
    assert faults.loads == 1


def test_a_candidate_that_runs_out_of_memory_again_and_again_is_no_score(client, faults):
    faults.begin(of_third=out_of_memory, times=2)
    experiment, _ = run(client, "out of memory", max_attempts=1)
    assert experiment.state == FAILED
    assert "CUDA out of memory" in experiment.error


def test_a_candidate_of_nan_is_left_out_within_the_budget(client, faults, undisturbed):
    faults.begin(of_third=not_finite)
    experiment, found = run(client, "NaN within budget", max_failed_candidates=1)
    assert experiment.state == SUCCEEDED
    (failed,) = (one for one in attempts(found) if one["error"])
    assert "not finite" in failed["error"]
    assert failed["attempts"] == 1
    assert rewards(found) == {**undisturbed, failed["index"]: None}
    assert faults.loads <= 1, "the engine is sound"


def test_a_model_that_does_not_fit_ends_the_experiment_at_once(client, faults):
    faults.begin(of_third=out_of_memory)
    run(client, "lets go of the engine", max_attempts=1)
    faults.begin(at_load=no_room)
    experiment, _ = run(client, "no room")
    assert experiment.state == FAILED
    assert "does not fit" in experiment.error
    assert "MODNORM_ENGINES_PER_GPU" in experiment.remedy
    assert faults.loads == 1
