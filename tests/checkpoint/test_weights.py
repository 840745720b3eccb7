import hashlib

import pytest
import torch
from safetensors.torch import load_file, save_file

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.errors import InvalidInputError


def open_weights(directory):
    return CheckpointWeights(resolve_checkpoint(str(directory)))


def rewrite(directory, change):
    file = directory / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def refused(directory):
    with pytest.raises(InvalidInputError) as caught:
        open_weights(directory)
    return caught.value


def test_sha256_is_that_of_the_bytes_in_canonical_order(save_model):
    weights = open_weights(save_model())
    content = b"".join(
        weights.read(tensor).view(torch.int16).numpy().tobytes() for tensor in weights.layout
    )
    assert weights_sha256(weights.layout, weights.read) == hashlib.sha256(content).hexdigest()


def test_sha256_sees_a_single_bit_and_the_sign_of_zero(save_model):
    weights = open_weights(save_model())

    def digest(third):
        def read(tensor):
            value = weights.read(tensor).clone()
            if tensor.name == "model.layers.1.self_attn.qkv_proj.bias":
                value[3] = third
            return value

        return weights_sha256(weights.layout, read)

    one_ulp = 1 + 2**-7
    assert len({digest(value) for value in (0.0, 1.0, one_ulp)} | {digest(-0.0)}) == 4


def test_a_repeated_tied_head_is_ignored(save_model):
    directory = save_model(tie_word_embeddings=True)
    before = open_weights(directory)
    rewrite(
        directory, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()})
    )
    after = open_weights(directory)
    assert after.layout == before.layout
    assert weights_sha256(after.layout, after.read) == weights_sha256(before.layout, before.read)


@pytest.mark.parametrize("factor", [2.0, -1.0])
def test_a_tied_head_that_differs_is_refused(save_model, factor):
    directory = save_model(tie_word_embeddings=True)
    rewrite(
        directory, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] * factor})
    )
    assert "lm_head.weight" in str(refused(directory))


def test_a_missing_tensor_is_named(save_model):
    directory = save_model()
    rewrite(directory, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    assert "model.layers.1.mlp.up_proj.weight" in str(refused(directory))


def test_a_wrong_shape_is_named(save_model, edit_config):
    directory = save_model()
    edit_config(directory, intermediate_size=47)
    assert "mlp.gate_proj.weight" in str(refused(directory))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float64, torch.float32])
def test_mixed_or_unknown_dtypes_are_refused(save_model, dtype):
    directory = save_model()
    name = "model.layers.0.mlp.down_proj.weight"
    rewrite(directory, lambda t: t.update({name: t[name].to(dtype)}))
    assert name in str(refused(directory))


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_declared_dtype_must_be_the_stored_one(save_model, edit_config, key):
    directory = save_model()
    edit_config(directory, **{"dtype": None, key: "float16"})
    assert refused(directory).field == "model.config.dtype"


@pytest.mark.parametrize("keep", [0, 5, 2000])
def test_a_truncated_file_is_refused(save_model, keep):
    directory = save_model()
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    error = refused(directory)
    assert "model.safetensors" in str(error)
    assert error.remedy
