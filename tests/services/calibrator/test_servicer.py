import asyncio
import logging
import threading

import grpc
import pytest

from modnorm.calibration.calibrate import calibrate, calibration_key
from modnorm.calibration.profile import Profile
from modnorm.checkpoint import prompts
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.client import matching
from modnorm.client.settings import ClientSettings
from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.services.calibrator import servicer
from modnorm.spec import CalibrationSpec, parse_spec
from modnorm.v1 import calibration_pb2 as pb
from modnorm.v1 import common_pb2
from modnorm.wire.conversions import prompts_from_proto
from modnorm.wire.status import from_rpc_error
from verification.labs.waiting import HANG_SECONDS

CALIBRATION = {"examples": 2, "max_length": 16, "iterations": 1}


async def collect(call):
    """Return the progress of a calibration as pairs, and its profile."""
    *first, last = [response async for response in call]
    assert {response.WhichOneof("result") for response in first} <= {"progress"}
    told = [response.progress for response in first]
    return [(each.examples_done, each.examples_total) for each in told], last.profile


def prompts_of(request):
    encoder = PromptEncoder(resolve_checkpoint("tiny-thicket"))
    return [encoder.encode(turns) for turns in prompts_from_proto(request.prompts)]


def computed(caplog):
    return [record for record in caplog.records if record.getMessage() == "calibration done"]


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO, "modnorm.services.calibrator")


async def test_calls_share_the_tokenizer_of_a_model(serve, settings, request_for, monkeypatch):
    load, loaded = prompts._load_tokenizer, []

    def counted(checkpoint):
        loaded.append(checkpoint)
        return load(checkpoint)

    monkeypatch.setattr(prompts, "_load_tokenizer", counted)
    async with serve(settings) as stub:
        for _ in range(2):
            await collect(stub.Calibrate(request_for(), timeout=HANG_SECONDS))
    assert len(loaded) == 1


async def test_progress_then_the_profile_of_the_library(serve, settings, request_for):
    request = request_for()
    async with serve(settings) as stub:
        progress, message = await collect(stub.Calibrate(request, timeout=HANG_SECONDS))
    assert progress[0] == (0, 2)
    assert progress[-1] == (2, 2)
    assert progress == sorted(progress)

    checkpoint = resolve_checkpoint("tiny-thicket")
    settings = CalibrationSpec(**CALIBRATION)
    expected = calibrate(checkpoint, prompts_of(request), settings, task="countdown")
    assert message.json == expected.to_json()
    assert message.digest == expected.digest


async def test_a_profile_is_computed_once(serve, settings, request_for, caplog):
    async with serve(settings) as stub:
        _, first = await collect(stub.Calibrate(request_for(), timeout=HANG_SECONDS))
    async with serve(settings) as stub:
        # The third and fourth prompts are not used, so they do not matter.
        request = request_for(prompts=2)
        progress, again = await collect(stub.Calibrate(request, timeout=HANG_SECONDS))
    assert progress == []
    assert again == first
    assert len(computed(caplog)) == 1


async def test_the_inputs_of_a_profile_are_digested_outside_of_the_event_loop(
    serve, settings, request_for, monkeypatch
):
    threads = set()

    def key(*inputs):
        threads.add(threading.current_thread())
        return calibration_key(*inputs)

    monkeypatch.setattr(servicer, "calibration_key", key)
    async with serve(settings) as stub:
        await collect(stub.Calibrate(request_for(), timeout=HANG_SECONDS))
    assert threads
    assert threading.current_thread() not in threads


async def test_a_matching_takes_the_profile_of_the_service(
    serve, settings, request_for, spec, monkeypatch
):
    request = request_for()
    async with serve(settings) as stub:
        _, message = await collect(stub.Calibrate(request, timeout=HANG_SECONDS))
    monkeypatch.setattr(matching, "calibrate", pytest.fail)
    checkpoint = resolve_checkpoint("tiny-thicket")
    method = {"method": {"name": "modular_norm", "radius": 0.1}, "calibration": CALIBRATION}
    asked = parse_spec(spec.model_dump(mode="json") | method)
    client = ClientSettings(cache_dir=settings.cache)
    found = matching._calibrated(asked, checkpoint, prompts_of(request), client, None)
    assert found.digest == message.digest


@pytest.mark.parametrize("servers", [1, 2])
async def test_concurrent_callers_share_one_computation(
    serve, settings, request_for, caplog, servers
):
    async with serve(settings) as one, serve(settings) as two:
        stubs = [one, one, one] if servers == 1 else [one, two]
        calls = [stub.Calibrate(request_for(), timeout=HANG_SECONDS) for stub in stubs]
        results = await asyncio.gather(*(collect(call) for call in calls))
    assert len({profile.digest for _, profile in results}) == 1
    assert len(computed(caplog)) == 1


async def test_each_input_changes_the_key_of_a_profile(serve, settings, request_for):
    variants = [
        request_for(),
        request_for(task="gsm8k"),
        request_for(settings=common_pb2.CalibrationSpec(examples=2, max_length=15, iterations=1)),
    ]
    async with serve(settings) as stub:
        made = [await collect(stub.Calibrate(one, timeout=HANG_SECONDS)) for one in variants]
    assert len({profile.digest for _, profile in made}) == 3


async def test_a_computation_without_followers_stops(serve, settings, request_for, caplog):
    many = request_for(examples=64, prompts=64)
    async with asyncio.timeout(HANG_SECONDS), serve(settings) as stub:
        call = stub.Calibrate(many, timeout=HANG_SECONDS)
        await call.read()
        call.cancel()
        # Calibrations take turns: this one starts when the other has stopped.
        _, profile = await collect(stub.Calibrate(request_for(), timeout=HANG_SECONDS))
    assert "calibration ended without a result" in caplog.messages
    stored = [path.stem for path in (settings.cache_dir / "profiles").glob("*.json")]
    assert stored == [profile.digest]


async def test_a_stored_profile_is_found_by_digest_and_fingerprint(serve, settings, request_for):
    async with serve(settings) as stub:
        _, made = await collect(stub.Calibrate(request_for(), timeout=HANG_SECONDS))
        for name in (made.digest, Profile.from_json(made.json).fingerprint):
            request = pb.GetProfileRequest(digest=name)
            assert (await stub.GetProfile(request, timeout=HANG_SECONDS)).profile == made


@pytest.mark.parametrize(
    ("digest", "kind"),
    [
        ("", InvalidInputError),
        ("abc", InvalidInputError),
        ("../" + "a" * 13, InvalidInputError),
        ("*" * 16, InvalidInputError),
        ("0" * 16, NotFoundError),
        ("0" * 64, NotFoundError),
    ],
)
async def test_a_missing_profile_is_not_found(serve, settings, digest, kind):
    async with serve(settings) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetProfile(pb.GetProfileRequest(digest=digest), timeout=HANG_SECONDS)
    error = from_rpc_error(caught.value)
    assert type(error) is kind
    assert error.field == "digest"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompts": 0}, "prompts"),
        ({"model": common_pb2.ModelRef(name="no-such-model")}, "model.name"),
        ({"model": common_pb2.ModelRef(name="tiny-thicket", revision="main")}, "model.revision"),
        ({"task": ""}, "task"),
        ({"settings": common_pb2.CalibrationSpec(examples=0)}, "calibration.examples"),
        ({"examples": 1, "prompts": 1}, "calibration.examples"),
    ],
)
async def test_a_bad_request_names_its_field(serve, settings, request_for, fields, field):
    async with serve(settings) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await collect(stub.Calibrate(request_for(**fields), timeout=HANG_SECONDS))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = from_rpc_error(caught.value)
    assert isinstance(error, InvalidInputError)
    assert error.field == field
    assert not list(settings.cache_dir.glob("profiles/*.json"))
