from contextlib import asynccontextmanager

import pytest

from modnorm.services.calibrator.server import build
from modnorm.services.common.service_process import ANY_PORT
from modnorm.services.common.settings import CalibratorSettings
from modnorm.v1 import calibration_pb2 as pb
from modnorm.v1 import calibration_pb2_grpc, common_pb2
from tests.services.loopback import serving


def prompt(index):
    text = f"Using the numbers [{index + 3}, 7, 25], make {2 * index + 20}."
    return common_pb2.Prompt(messages=[common_pb2.ChatMessage(role="user", content=text)])


@pytest.fixture
def settings(tmp_path):
    return CalibratorSettings(
        bind_address=ANY_PORT,
        stop_grace=0,
        cache_dir=tmp_path / "cache",
        model_roots=(tmp_path / "models",),
    )


@pytest.fixture
def request_for():
    """Return a small calibration request for the bundled model, with fields replaced."""

    def build(examples=2, prompts=4, **fields):
        settings = common_pb2.CalibrationSpec(examples=examples, max_length=16, iterations=1)
        values = {
            "model": common_pb2.ModelRef(name="tiny-thicket"),
            "prompts": [prompt(index) for index in range(prompts)],
            "task": "countdown",
            "settings": settings,
        }
        return pb.CalibrateRequest(**{**values, **fields})

    return build


@pytest.fixture
def serve():
    """Run a calibrator on loopback and yield its stub."""

    @asynccontextmanager
    async def served(settings):
        async with serving(build(settings)) as channel:
            yield calibration_pb2_grpc.CalibrationServiceStub(channel)

    return served
