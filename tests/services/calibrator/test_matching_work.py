import asyncio
import logging

import grpc
import pytest

from modnorm.errors import InvalidInputError
from modnorm.radius.artifact import RadiusArtifact
from modnorm.v1 import common_pb2
from modnorm.wire.status import from_rpc_error
from services.calibrator.matching_work import make_matching
from verification.labs.waiting import HANG_SECONDS


async def collect(call):
    """Return the progress of a matching as pairs, and its artifact."""
    *told, last = [response async for response in call]
    progress = [(one.progress.candidates_done, one.progress.candidates_total) for one in told]
    return progress, last.artifact


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO, "services.calibrator")


def journal(settings):
    (path,) = (settings.cache_dir / "radii" / "measurements").glob("*.jsonl")
    return path.read_bytes()


async def test_progress_then_the_artifact_of_the_library_computed_once(
    serve, settings, measure_request, caplog, tmp_path
):
    async with serve(settings) as stub:
        progress, first = await collect(
            stub.MeasureRadius(measure_request(), timeout=HANG_SECONDS)
        )
    async with serve(settings) as stub:
        # The order of the radii and prompts that are not used do not matter.
        same = measure_request(prompts=4, radii=[0.04, 0.16])
        _, again = await collect(stub.MeasureRadius(same, timeout=HANG_SECONDS))
    assert progress[0] == (0, 6)
    assert progress[-1] == (6, 6)
    assert progress == sorted(progress)
    assert again == first
    assert caplog.messages.count("matching done") == 1
    work = make_matching(measure_request(), None, tmp_path / "elsewhere")
    assert work.compute(lambda done, total: None) == first.json
    assert RadiusArtifact.from_json(first.json).digest == first.digest


async def test_an_interrupted_matching_resumes_and_another_grid_reuses_measurements(
    serve, settings, measure_request, caplog
):
    many = measure_request(candidates=6)
    async with asyncio.timeout(HANG_SECONDS), serve(settings) as stub:
        call = stub.MeasureRadius(many, timeout=HANG_SECONDS)
        while (await call.read()).progress.candidates_done < 2:
            pass
        call.cancel()
        kept = journal(settings)
        _, artifact = await collect(stub.MeasureRadius(many, timeout=HANG_SECONDS))
        whole = journal(settings)
        fewer = measure_request(candidates=6, radii=[0.16])
        await collect(stub.MeasureRadius(fewer, timeout=HANG_SECONDS))
    assert "matching ended without a result" in caplog.messages
    assert 1 + 2 <= len(kept.splitlines()) < 1 + 18
    assert whole.startswith(kept)
    assert len(whole.splitlines()) == 1 + 18
    assert journal(settings) == whole
    assert len(RadiusArtifact.from_json(artifact.json).document.radii) == 2


async def test_a_long_matching_yields_and_resumes(
    serve, settings, measure_request, request_for, caplog, monkeypatch
):
    monkeypatch.setattr("services.calibrator.computations.TURN_SECONDS", 0.0)
    many = measure_request(candidates=6)
    async with asyncio.timeout(HANG_SECONDS), serve(settings) as stub:
        call = aiter(stub.MeasureRadius(many, timeout=HANG_SECONDS))
        while (await anext(call)).progress.candidates_done < 2:
            pass
        calibrated = [one async for one in stub.Calibrate(request_for(), timeout=HANG_SECONDS)]
        assert "matching done" not in caplog.messages
        assert calibrated[-1].profile.digest
        progress, artifact = await collect(call)
    assert [done for done, _ in progress] == list(range(3, 19))
    assert len(RadiusArtifact.from_json(artifact.json).document.radii) == 2
    assert "matching yields to another computation" in caplog.messages
    assert len(journal(settings).splitlines()) == 1 + 18


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"task": ""}, "task"),
        ({"model": common_pb2.ModelRef(name="no-such-model")}, "model.name"),
        ({"method": common_pb2.MethodSpec(name="base")}, "method.name"),
        ({"method": common_pb2.MethodSpec(name="guess", radius=1)}, "method.name"),
        ({"method": common_pb2.MethodSpec(name="modular_norm", radius=1)}, "method.profile"),
        ({"radii": []}, "radii"),
        ({"radii": [0.0]}, "radii"),
        ({"sigma": float("nan")}, "sigma"),
        ({"candidates": 101}, "matching.candidates"),
        ({"candidates": 0}, "matching.candidates"),
        ({"pool": "deep"}, "matching.pool"),
        ({"noise": "pink"}, "population.noise"),
        ({"prompts": 2}, "task.selection"),
    ],
)
async def test_a_bad_request_names_its_field(serve, settings, measure_request, fields, field):
    async with serve(settings) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await collect(stub.MeasureRadius(measure_request(**fields), timeout=HANG_SECONDS))
        error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidInputError)
    assert error.field == field
    assert not (settings.cache_dir / "radii" / "measurements").exists()
