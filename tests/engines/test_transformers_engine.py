import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.engines import (
    Drafts,
    EngineSettings,
    GenerationLimits,
    Numerics,
    decoding,
    load_engine,
    transformers_engine,
)
from modnorm.engines.causal import ATTENTION, CausalModel
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.errors import DoesNotFitError, EngineError, IncompatibleError, PreconditionError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import Lineage, Step
from tests.faults import error_at

Prompts = Sequence[Sequence[int]]
LIMITS = GenerationLimits(max_tokens=16)


@pytest.fixture(params=["float32", "llama"])
def exact(request: pytest.FixtureRequest) -> Checkpoint:
    """A model in which rounding does not decide an argmax."""
    found: Checkpoint = request.getfixturevalue(request.param)
    return found


def test_a_model_that_does_not_fit_a_gpu_twice_is_refused_before_it_is_loaded(
    bundled: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = SimpleNamespace(total_memory=2**20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(DoesNotFitError, match="two copies") as caught:
        TransformersEngine(bundled)
    assert "MODNORM_ENGINES_PER_GPU" in (caught.value.remedy or "")


def test_running_out_of_memory_for_the_copy_is_an_engine_error(
    bundled: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("others have it")

    monkeypatch.setattr("modnorm.engines.transformers_engine.CandidateWeights", copied)
    with pytest.raises(EngineError, match=r"copying the weights of .*: others have it"):
        TransformersEngine(bundled)


def texts(engine: TransformersEngine, prompts: Prompts) -> list[tuple[str, int]]:
    done = sorted(engine.generate(prompts, LIMITS), key=lambda completion: completion.index)
    return [(completion.text, completion.tokens) for completion in done]


def reference(checkpoint: Checkpoint, prompts: Prompts) -> list[tuple[str, int]]:
    """Return the answers of transformers' own `generate`, padded on the left."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        checkpoint.directory, attn_implementation="sdpa"
    )
    encoder = PromptEncoder(checkpoint)
    longest = max(map(len, prompts))
    pads = [longest - len(prompt) for prompt in prompts]
    output = model.generate(
        input_ids=torch.tensor(
            [[0] * pad + [*ids] for pad, ids in zip(pads, prompts, strict=True)]
        ),
        attention_mask=torch.tensor([[0] * pad + [1] * (longest - pad) for pad in pads]),
        max_new_tokens=LIMITS.max_tokens,
        do_sample=False,
        eos_token_id=sorted(encoder.stop_ids),
        pad_token_id=0,
    )
    answers = []
    for row in output[:, longest:].tolist():
        stops = [place for place, token in enumerate(row) if token in encoder.stop_ids]
        tokens = stops[0] + 1 if stops else len(row)
        answers.append((encoder.decode(row[:tokens]), tokens))
    return answers


def test_answers_are_those_of_transformers_own_generate(
    exact: Checkpoint, prompts: Prompts
) -> None:
    assert texts(TransformersEngine(exact), prompts) == reference(exact, prompts)


def test_a_cpu_computes_in_float32_on_weights_of_the_dtype_of_the_model(
    bundled_engine: TransformersEngine, bundled: Checkpoint, float32: Checkpoint, prompts: Prompts
) -> None:
    stored = CheckpointWeights(bundled)
    assert stored.dtype == torch.bfloat16
    assert bundled_engine.environment["arithmetic"] == "float32"
    assert texts(bundled_engine, prompts) == texts(TransformersEngine(float32), prompts)
    assert bundled_engine.weights_sha256() == weights_sha256(stored.layout, stored.read)


def test_answers_do_not_depend_on_the_batch(
    exact: Checkpoint, prompts: Prompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TransformersEngine(exact)
    together = texts(engine, prompts)
    monkeypatch.setattr(transformers_engine, "MAX_ROWS", 3)
    assert texts(engine, prompts) == together
    assert [texts(engine, [prompt])[0] for prompt in prompts] == together


def beginnings(engine: TransformersEngine, prompts: Prompts) -> list[tuple[int, int]]:
    """Return the rows and columns of each prefill of a request."""
    passes: list[tuple[int, int]] = []
    prefill = engine._model.prefill

    def counted(ids: torch.Tensor, *given: Any, **named: Any) -> list[int]:
        passes.append((ids.shape[0], ids.shape[1]))
        return prefill(ids, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine._model, "prefill", counted)
        texts(engine, prompts)
    return passes


@pytest.mark.parametrize("max_rows", [2, 256])
def test_a_shared_prefix_is_read_once(
    exact: Checkpoint, max_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers_engine, "MAX_ROWS", max_rows)
    system = list(range(40, 70))
    prompts = [[*system, *ids] for ids in ([5, 6, 7], [8], [9, 10], [5, 6], [5])]
    engine = TransformersEngine(exact)
    passes = beginnings(engine, prompts)
    assert passes[0] == (1, 30)
    assert sum(rows for rows, _ in passes[1:]) == 5
    assert max(columns for _, columns in passes[1:]) == 3
    assert texts(engine, prompts) == reference(exact, prompts)
    nested = [prompts[0], system]
    assert texts(engine, nested) == reference(exact, nested)


def test_cache_budget_bounds_the_slots(bundled_engine: TransformersEngine) -> None:
    decoder = decoding.Decoder(
        bundled_engine._model,
        [[5, 6, 7]] * 10,
        max_tokens=7,
        stop_ids=(),
        max_rows=100,
        max_cache_tokens=35,
    )
    live = []
    done = list(decoder.run(lambda: live.append(len(decoder._live))))
    assert max(live) == 3
    assert sorted(one.index for one in done) == list(range(10))
    assert {len(one.generated) for one in done} == {7}


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), RuntimeError("kernel")])
def test_runtime_failures_are_engine_errors(
    bundled_engine: TransformersEngine, prompts: Prompts, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    head = bundled_engine._model._head
    hook = head.register_forward_pre_hook(fail)
    with pytest.raises(EngineError, match="generation failed"):
        texts(bundled_engine, prompts)
    hook.remove()
    assert len(texts(bundled_engine, prompts)) == len(prompts)


@pytest.mark.parametrize("checkpoint", ["bundled"], indirect=True)
@pytest.mark.parametrize("method", ["randopt", "base"])
def test_weights_that_something_else_changed_are_noticed(
    bundled_engine: TransformersEngine,
    make_scale_map: Callable[[str], ScaleMap],
    draw: Callable[..., Descriptor],
    method: str,
) -> None:
    scale_map = make_scale_map(method)
    descriptor = draw(scale_map, 1, radius=0.02 if method == "randopt" else 0.0)
    weights = next(bundled_engine._model._head.parameters()).data
    with bundled_engine.candidate(descriptor, scale_map):
        pass
    weights[0, 0].neg_()
    changed = bundled_engine.weights_sha256()
    for _ in range(2):
        with (
            pytest.raises(EngineError, match="not the base") as caught,
            bundled_engine.candidate(descriptor, scale_map),
        ):
            pass
        assert caught.value.remedy
    assert bundled_engine.weights_sha256() == changed


@pytest.mark.parametrize("checkpoint", ["bundled"], indirect=True)
def test_a_change_below_the_rounding_of_the_weights_is_noticed(
    bundled_engine: TransformersEngine,
    make_scale_map: Callable[[str], ScaleMap],
    draw: Callable[..., Descriptor],
) -> None:
    scale_map = make_scale_map("randopt")
    weights = next(bundled_engine._model._head.parameters()).data
    weights[0, 0] *= 1 + 1e-6
    with (
        pytest.raises(EngineError, match="not the base"),
        bundled_engine.candidate(draw(scale_map, 1), scale_map),
    ):
        pass
    with pytest.raises(EngineError, match="something else wrote"):
        bundled_engine.weights_sha256()


@pytest.mark.parametrize("checkpoint", ["bundled"], indirect=True)
def test_a_failed_restore_is_noticed(
    bundled_engine: TransformersEngine,
    make_scale_map: Callable[[str], ScaleMap],
    draw: Callable[..., Descriptor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise RuntimeError("the device is gone")

    scale_map = make_scale_map("randopt")
    monkeypatch.setattr(bundled_engine._weights, "restore", fail)
    for message in ("restoring", "not the base"):
        with (
            pytest.raises(EngineError, match=message),
            bundled_engine.candidate(draw(scale_map, 1), scale_map),
        ):
            pass


def test_unknown_engine_is_refused(bundled: Checkpoint) -> None:
    with error_at("engine.name") as caught:
        load_engine("tensorrt", bundled)
    assert "transformers" in str(caught.value)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("engine.numerics", EngineSettings(numerics=Numerics.BATCH_INVARIANT)),
        ("engine.tensor_parallel_size", EngineSettings(tensor_parallel_size=2)),
        ("engine.drafts", EngineSettings(drafts=Drafts.POPULATION)),
    ],
)
def test_settings_of_vllm_are_refused(
    bundled: Checkpoint, field: str, settings: EngineSettings
) -> None:
    with error_at(field, kind=IncompatibleError):
        load_engine("transformers", bundled, settings)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("rope_parameters", {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("_attn_implementation", "eager"),
    ],
)
def test_models_that_the_slot_cache_cannot_decode_are_refused(
    bundled: Checkpoint, setting: str, value: object
) -> None:
    model = AutoModelForCausalLM.from_pretrained(bundled.directory, attn_implementation=ATTENTION)
    CausalModel(model)
    setattr(model.config, setting, value)
    with pytest.raises(IncompatibleError):
        CausalModel(model)


def test_the_base_is_never_read_from_files_in_place_of_the_models(
    bundled: Checkpoint, tmp_path: Path
) -> None:
    directory = tmp_path / "model"
    shutil.copytree(bundled.directory, directory)
    checkpoint = resolve_checkpoint(str(directory))
    engine = TransformersEngine(checkpoint)
    engine.rebase(
        Lineage(checkpoint.digest, "portable-v1", steps=(Step("es", (1,), (1.0,), 0.5),))
    )
    weights = directory / "model.safetensors"
    other = {name: tensor + 1 for name, tensor in load_file(weights).items()}
    save_file(other, tmp_path / "new", metadata={"format": "pt"})
    (tmp_path / "new").replace(weights)
    with pytest.raises(PreconditionError, match="is model"):
        engine.rebase(None)
    engine.close()
