from contextlib import asynccontextmanager

import pytest

from modnorm.calibration.calibrate import calibrate
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.services.common.service_process import ANY_PORT
from modnorm.services.common.settings import SamplerSettings
from modnorm.services.sampler.server import build
from modnorm.spec import CalibrationSpec
from modnorm.v1 import sampling_pb2_grpc
from tests.services.loopback import serving


@pytest.fixture
def settings(tmp_path):
    return SamplerSettings(
        bind_address=ANY_PORT,
        stop_grace=0,
        cache_dir=tmp_path / "cache",
        model_roots=(tmp_path / "models",),
    )


@pytest.fixture(scope="session")
def checkpoint():
    return resolve_checkpoint("tiny-thicket")


@pytest.fixture(scope="session")
def profile(checkpoint):
    """A quick profile of the bundled model."""
    settings = CalibrationSpec(examples=2, max_length=4, iterations=1)
    return calibrate(checkpoint, [[5, 6, 7, 8], [9, 10, 11]], settings, task="countdown")


@pytest.fixture
def serve(settings):
    """Run a sampler on loopback and yield a stub of it."""

    @asynccontextmanager
    async def served():
        async with serving(build(settings)) as channel:
            yield sampling_pb2_grpc.SamplingServiceStub(channel)

    return served
