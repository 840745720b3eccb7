import asyncio
import shutil
from math import nan

import grpc
import pytest

from modnorm.artifact_store import ArtifactStore
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.methods import build_scale_map
from modnorm.perturbation.sampling import population_seeds, sample_descriptors
from modnorm.services.sampler import servicer
from modnorm.tasks.protocol import Message
from modnorm.v1 import common_pb2
from modnorm.v1 import sampling_pb2 as pb
from modnorm.wire.conversions import descriptor_from_proto, prompt_to_proto
from modnorm.wire.status import from_rpc_error
from verification.labs.waiting import HANG_SECONDS

MODEL = common_pb2.ModelRef(name="tiny-thicket")
METHOD = common_pb2.MethodSpec(name="modular_norm", radius=0.16)
RANDOPT = common_pb2.MethodSpec(name="randopt", radius=0.005)


@pytest.fixture
def call(serve):
    """Call a new sampler; return the response, or the list of a stream."""

    def run(method, request):
        async def scenario():
            async with serve() as stub:
                answer = getattr(stub, method)(request, timeout=HANG_SECONDS)
                if method == "SampleDescriptors":
                    return [message async for message in answer]
                return await answer

        return asyncio.run(scenario())

    return run


@pytest.fixture
def refusal(call):
    """Make one call that must fail; return the code and the error."""

    def run(method, request):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            call(method, request)
        return caught.value.code(), from_rpc_error(caught.value)

    return run


def prompt(text):
    return prompt_to_proto([Message("user", text)])


def test_a_model_is_described(call, checkpoint):
    texts = ["Hello", "Using the numbers [3, 7, 25], make 46."]
    request = pb.InspectModelRequest(
        model=MODEL, prompts=[prompt(text) for text in texts], max_tokens=64
    )
    answer = call("InspectModel", request)
    encoder = PromptEncoder(checkpoint)
    longest = max(len(encoder.encode([Message("user", text)])) for text in texts)
    assert answer == pb.InspectModelResponse(
        model_digest=checkpoint.digest, num_layers=8, longest_prompt=longest
    )


def scale_map_request(profile=None, **fields):
    values = {"model": MODEL, "method": METHOD, **fields}
    if profile is not None:
        values["profile_json"] = profile.to_json()
    return pb.BuildScaleMapRequest(**values)


def test_the_scale_map_is_that_of_the_library(call, checkpoint, profile):
    answer = call("BuildScaleMap", scale_map_request(profile, model_digest=checkpoint.digest))
    expected = build_scale_map("modular_norm", checkpoint, sensitivities=profile.sensitivities)
    assert answer.json == expected.to_json()
    assert answer.digest == expected.digest
    assert ScaleMap.from_json(answer.json) == expected


def test_a_model_with_another_digest_is_refused(refusal, profile):
    request = scale_map_request(profile, model_digest="0" * 64)
    code, error = refusal("BuildScaleMap", request)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert isinstance(error, PreconditionError)


SCALE_MAP = "ab" * 32


def population_request(**fields):
    values = {
        "seed": 42,
        "size": 1200,
        "pool": "nested",
        "noise": "portable-v1",
        "method": RANDOPT,
        "scale_map_digest": SCALE_MAP,
    }
    return pb.SampleDescriptorsRequest(**{**values, **fields})


@pytest.mark.parametrize("pool", ["nested", "published"])
def test_the_population_is_that_of_the_library(call, pool):
    messages = call("SampleDescriptors", population_request(pool=pool))
    assert [(m.offset, len(m.descriptors)) for m in messages] == [
        (0, 512),
        (512, 512),
        (1024, 176),
    ]
    drawn = [descriptor_from_proto(one) for message in messages for one in message.descriptors]
    expected = sample_descriptors(
        "randopt", SCALE_MAP, radius=0.005, noise="portable-v1", seed=42, size=1200, pool=pool
    )
    assert drawn == list(expected)
    assert [one.seed for one in drawn] == list(population_seeds(42, 1200, pool))
    assert all(one.coefficients is None for one in drawn)


def inspection(**fields):
    return pb.InspectModelRequest(**{"model": MODEL, **fields})


def method(name, radius=0.1, rank=None):
    return common_pb2.MethodSpec(name=name, radius=radius, rank=rank)


NO_MODEL = common_pb2.ModelRef(name="no-such-model")
PUBLISHED = "randopt-reseed-v1"


@pytest.mark.parametrize(
    ("rpc", "message", "field"),
    [
        ("InspectModel", inspection(model=NO_MODEL), "model.name"),
        ("InspectModel", inspection(model=common_pb2.ModelRef(name="/etc")), "model.name"),
        ("InspectModel", inspection(max_tokens=-1), "task.max_tokens"),
        ("InspectModel", inspection(prompts=[common_pb2.Prompt()]), "prompts.0"),
        ("BuildScaleMap", scale_map_request(), "method.profile"),
        ("BuildScaleMap", scale_map_request(profile_json="{}"), "method.profile"),
        ("BuildScaleMap", scale_map_request(method=method("magic")), "method.name"),
        ("BuildScaleMap", scale_map_request(method=method("randopt", nan)), "method.radius"),
        ("BuildScaleMap", scale_map_request(model=NO_MODEL), "model.name"),
        ("SampleDescriptors", population_request(size=0), "population.size"),
        ("SampleDescriptors", population_request(noise="loud"), "population.noise"),
        (
            "SampleDescriptors",
            population_request(method=method("randopt", rank=4), noise=PUBLISHED),
            "method.rank",
        ),
        ("SampleDescriptors", population_request(method=method("es", rank=4)), "method.rank"),
        ("SampleDescriptors", population_request(method=method("magic")), "method.name"),
        ("SampleDescriptors", population_request(scale_map_digest="abc"), "scale_map_digest"),
    ],
)
def test_a_bad_request_names_its_field(refusal, settings, rpc, message, field):
    code, error = refusal(rpc, message)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, InvalidInputError)
    assert error.field == field
    assert not settings.cache_dir.exists()


def test_a_scale_map_of_files_that_were_replaced_meanwhile_is_not_kept(
    tmp_path, checkpoint, monkeypatch
):
    models, store = tmp_path / "models", tmp_path / "maps"
    shutil.copytree(checkpoint.directory, models / "mine")

    def replaced(*given, **named):
        config = models / "mine" / "config.json"
        config.write_text(config.read_text() + "\n")
        return build_scale_map(*given, **named)

    monkeypatch.setattr(servicer, "build_scale_map", replaced)
    model = common_pb2.ModelRef(name=str(models / "mine"))
    request = pb.BuildScaleMapRequest(model=model, method=RANDOPT)
    with pytest.raises(PreconditionError, match="is model"):
        servicer.find_or_build(request, ArtifactStore(store), [models])
    assert not store.exists()
