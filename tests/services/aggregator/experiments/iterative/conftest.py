"""Iterative runs, and workers whose answers depend on the whole descriptor."""

import hashlib
from contextlib import asynccontextmanager

import pytest

from modnorm.v1 import experiment_pb2

SETTINGS = {
    "es": {
        "method": "es",
        "population": {"size": 3, "seed": 5},
        "iterative": {"updates": 4, "rate": 0.5, "monitor": [2]},
    },
    "mezo": {
        "method": "mezo",
        "population": {"seed": 5},
        "iterative": {
            "updates": 5,
            "rate": 0.5,
            "evaluate_every": 2,
            "development": {"source": "bundled:word-problems-selection", "offset": 10, "limit": 4},
        },
    },
}


def blend(job):
    """Let the answers of the synthetic worker depend on the whole descriptor."""
    given = job.descriptor
    text = f"{given.seed}/{given.radius}/{given.lineage_digest}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


def blending(worker):
    plain = worker.report_of

    async def report_of(job):
        seed, job.descriptor.seed = job.descriptor.seed, blend(job)
        found = await plain(job)
        found.descriptor.seed = job.descriptor.seed = seed
        return found

    worker.report_of = report_of
    return worker


@asynccontextmanager
async def at_work(lab, count=1):
    async with lab.working(*(blending(lab.worker()) for _ in range(count))):
        yield


@pytest.fixture
def sensitive():
    """Let a synthetic worker answer by `blend`."""
    return blending


@pytest.fixture
def worked():
    """Run a number of such workers in a lab inside the context."""
    return at_work


@pytest.fixture
def iterative_spec(spec):
    """Return a small spec of a method: a function of its name and settings that differ."""

    def make(method, /, **changes):
        return spec(**{**SETTINGS[method], **changes})

    return make


@pytest.fixture
def whole_run(start_lab):
    """Run a spec in a lab of its own; return the experiment, its candidates and its lineage."""

    async def run(url, message, workers=1):
        async with start_lab(url) as lab:
            created = await lab.create(message)
            async with at_work(lab, workers):
                await lab.finish(created.id)
            experiment = await lab.get(created.id)
            assert experiment.state == experiment_pb2.EXPERIMENT_STATE_SUCCEEDED, experiment.error
            return experiment, await lab.candidates(created.id), await lab.lineage(created.id)

    return run
