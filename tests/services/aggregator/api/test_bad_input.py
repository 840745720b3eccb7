"""Invalid requests get an error, store nothing and do not end the aggregator."""

import asyncio
import json
import random
import shutil

import grpc
import grpc.aio

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError, PreconditionError, UnavailableError
from modnorm.services.common.healthcheck import check
from modnorm.spec.search_sections import MAX_POPULATION
from modnorm.v1 import evaluation_pb2, experiment_pb2
from verification.labs.waiting import HANG_SECONDS

ALLOWED = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED}
BAD_SPECS: dict[str, dict[str, object]] = {
    "task.name": {"task__name": "chess"},
    "task.scorer": {"task__scorer": "generous"},
    "method.name": {"method": {"name": "guess", "radius": 0.1}},
    "method.masses": {
        "method": {
            "name": "modular_norm",
            "radius": 0.2,
            "masses": {"embedding": 0, "attention": 0, "mlp": 0, "norm": 0},
        }
    },
    "method.masses.norm": {
        "method": {"name": "rmsnorm_only", "radius": 0.2, "masses": {"norm": 0}}
    },
    "model.name": {"model": "no-such-model"},
    "population.noise": {"population__noise": "pink"},
    "population.ensemble_sizes": {
        "population": {
            "size": 100,
            "prefixes": list(range(50, 101)),
            "ensemble_sizes": list(range(1, 51)),
        }
    },
    "task.selection.source": {"task__selection": "bundled:no-such-rows"},
    "task.heldout.source": {"task__heldout": "/etc/hostname"},
    "calibration.examples": {
        "method": {"name": "modular_norm", "radius": 0.2},
        "calibration": {"examples": 1, "layers_per_example": 1},
    },
    "task.selection.limit": {
        "task__selection": {"source": "bundled:word-problems-selection", "limit": 100_000}
    },
    "task.selection": {"task__max_tokens": 100_000},
    "task.heldout": {"task__heldout": {"source": "bundled:word-problems-selection", "limit": 5}},
}

WRONG_POPULATIONS = [
    ("size", experiment_pb2.PopulationSpec(size=0)),
    ("size", experiment_pb2.PopulationSpec(size=MAX_POPULATION + 1)),
    ("prefixes", experiment_pb2.PopulationSpec(prefixes=[3])),
    ("ensemble_sizes", experiment_pb2.PopulationSpec(ensemble_sizes=[1, 4])),
]
"""Fields that no parsed spec has."""
GOOD_ROW = json.dumps({"question": "1 and 2?", "answer": "3"})
WRONG_FILES = {
    "empty.jsonl": "",
    "malformed.jsonl": f"{GOOD_ROW}\n{{oops\n",
    "schema.jsonl": f'{GOOD_ROW}\n{{"question": "many"}}\n',
}
OTHER_MODELS_RADIUS = {"artifact": "a" * 64, "protocol": "grid", "model_digest": "b" * 64}


MANY_ROWS_RADIUS = {
    **OTHER_MODELS_RADIUS,
    "transfer": True,
    "task": "gsm8k",
    "development_digest": "c" * 64,
    "development_prompts": [f"{row:016x}" for row in range(120_000)],
}


async def test_a_spec_of_megabytes_is_refused(start_lab, spec):
    message = spec(method={"name": "randopt", "radius": 0.1, "radius_source": MANY_ROWS_RADIUS})
    async with start_lab() as lab:
        async with lab.raises(InvalidInputError, "spec"):
            await lab.create(message)
        del message.method.radius_source.development_prompts[1000:]
        assert (await lab.create(message)).spec == message


async def test_an_invalid_experiment_is_refused_and_nothing_is_stored(start_lab, spec):
    async with start_lab() as lab:
        for field, changes in BAD_SPECS.items():
            async with lab.raises(InvalidInputError, field):
                await lab.create(spec(**changes))
        for request_id in ("", "x" * 129, "a\nb", "a\0b"):
            async with lab.raises(InvalidInputError, "request_id"):
                await lab.create(spec(), request_id)
        for source in ({"artifact": "radius.json"}, OTHER_MODELS_RADIUS):
            method = {"name": "randopt", "radius": 0.1 if len(source) > 1 else 0.0}
            async with lab.raises(InvalidInputError, "method.radius"):
                await lab.create(spec(method={**method, "radius_source": source}))
        for radius in (float("nan"), float("inf"), -1.0, 0.0):
            message = spec()
            message.method.radius = radius
            async with lab.raises(InvalidInputError):
                await lab.create(message)
        for field, wrong in WRONG_POPULATIONS:
            message = spec()
            message.population.ClearField(field)
            message.population.MergeFrom(wrong)
            async with lab.raises(InvalidInputError, f"population.{field}"):
                await lab.create(message)
        assert not (await lab.list()).experiments


async def test_files_of_rows_and_of_models_that_are_wrong_are_refused(start_lab, spec, tmp_path):
    tiny, quantised = resolve_checkpoint("tiny-thicket").directory, tmp_path / "quantised"
    shutil.copytree(tiny, quantised)
    config = json.loads((tiny / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (quantised / "config.json").write_text(json.dumps(config))
    async with start_lab() as lab:
        for name, content in WRONG_FILES.items():
            (tmp_path / name).write_text(content)
            async with lab.raises(InvalidInputError, "task.heldout"):
                await lab.create(spec(task__heldout=str(tmp_path / name)))
        async with lab.raises(InvalidInputError, "task.heldout.source"):
            await lab.create(spec(task__heldout=str(tmp_path / "absent.jsonl")))
        async with lab.raises(InvalidInputError, "model.config.quantization_config"):
            await lab.create(spec(model=str(quantised)))
        assert not (await lab.list()).experiments


async def test_a_task_that_runs_programs_needs_a_sandbox_before_anything_is_stored(
    start_lab, spec, tmp_path
):
    (tmp_path / "rows.jsonl").write_text(
        json.dumps({"text": "Write f.", "test_list": ["assert f(1) == 2"]})
    )
    changes = {
        "task__name": "mbpp",
        "task__selection": str(tmp_path / "rows.jsonl"),
        "task__heldout": str(tmp_path / "rows.jsonl"),
    }
    async with start_lab() as lab:
        async with lab.raises(PreconditionError, "task.name"):
            await lab.create(spec(**changes))
        assert not (await lab.list()).experiments
    async with (
        start_lab(sandbox_target="127.0.0.1:1") as patient,
        patient.without_retries() as lab,
    ):
        async with lab.raises(UnavailableError) as met:
            await lab.create(spec(**changes))
        assert "the sandbox cannot be reached: cannot connect to 127.0.0.1:1" in met.error.message
        assert not (await lab.list()).experiments


async def test_a_prompt_that_is_too_long_is_named_like_a_malformed_row(start_lab, spec, tmp_path):
    rows = [{"question": text, "answer": "1"} for text in ("a", "b", "long " * 3000)]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "long.jsonl").write_text(f"\n{lines}\n")
    async with start_lab() as lab:
        for split in ("selection", "heldout"):
            source = {"source": str(tmp_path / "long.jsonl"), "offset": 1}
            async with lab.raises(InvalidInputError, f"task.{split}") as met:
                await lab.create(spec(**{f"task__{split}": source}))
            assert "long.jsonl, line 4: " in met.error.message
            assert met.error.remedy == "shorten or drop the row"
        assert not (await lab.list()).experiments


def methods():
    for package in (experiment_pb2, evaluation_pb2):
        for service in package.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield f"/{service.full_name}/{method.name}", method


def junk(message):
    noise = random.Random(7)
    request = experiment_pb2.CreateExperimentRequest(request_id="r", spec=message)
    whole = request.SerializeToString()
    yield from (b"", b"\xff" * 7, whole[: len(whole) // 2], b"\x0a\x02\xff\xfe", b"\x0a\x01\x00")
    yield from (noise.randbytes(noise.randrange(1, 60)) for _ in range(12))


async def send(channel, path, method, content):
    """Return the status code of a call with raw bytes."""
    try:
        if method.client_streaming:
            await channel.stream_unary(path)(iter([content]), timeout=HANG_SECONDS)
        elif method.server_streaming:
            await channel.unary_stream(path)(content, timeout=HANG_SECONDS).read()
        else:
            await channel.unary_unary(path)(content, timeout=HANG_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_no_bytes_crash_the_aggregator(start_lab, spec):
    async with start_lab() as lab:
        for path, method in methods():
            for content in junk(spec()):
                code = await send(lab.channel, path, method, content)
                assert code in {*ALLOWED, grpc.StatusCode.OK}, (path, content)
        assert not (await lab.list()).experiments
        target = f"127.0.0.1:{lab.aggregator.port}"
        assert await asyncio.to_thread(check, target, "modnorm.v1.JobService") == "SERVING"
