from pathlib import Path

import pytest

from modnorm.checkpoint.config import (
    MAX_LAYERS,
    flag,
    load_config,
    optional_positive,
    positive,
)
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError
from tests.faults import error_at


def test_config_is_read_from_file_or_directory(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 3}')
    assert load_config(tmp_path) == load_config(tmp_path / "config.json") == {"vocab_size": 3}


@pytest.mark.parametrize("text", ["", "[1]", "{", "3", "[" * 100_000])
def test_a_config_that_is_not_an_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"config\.json"):
        load_config(tmp_path)


def test_missing_file_is_refused(tmp_path):
    with error_at("model.name") as caught:
        load_config(tmp_path)
    assert caught.value.remedy


@pytest.mark.parametrize("value", [0, -1, 2.0, "3", True, [1]])
def test_sizes_must_be_positive_integers(value):
    with error_at("model.config.hidden_size"):
        positive({"hidden_size": value}, "hidden_size")


def test_missing_size_is_named():
    with pytest.raises(InvalidInputError, match="lacks hidden_size"):
        positive({}, "hidden_size")
    assert optional_positive({"head_dim": None}, "head_dim") is None


def test_flags_are_booleans():
    assert flag({"mlp_bias": True}, "mlp_bias")
    assert not flag({}, "mlp_bias")
    with error_at("model.config.mlp_bias"):
        flag({"mlp_bias": 1}, "mlp_bias")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 100_000),
        ("num_attention_heads", 2**20),
        ("head_dim", 2**30),
        ("hidden_size", 2**40),
        ("intermediate_size", 2**40),
        ("vocab_size", 10**12),
        ("max_position_embeddings", 2**62),
    ],
)
def test_sizes_that_no_model_has_are_refused_by_their_key(key, value):
    with error_at(f"model.config.{key}", f"{key} is {value:,}") as caught:
        positive({key: value}, key)
    assert caught.value.remedy


def test_a_layout_with_too_many_layers_is_not_built():
    config = dict(load_config(resolve_checkpoint("tiny-thicket").directory))
    with error_at("model.config.num_hidden_layers", "num_hidden_layers is 1,001"):
        physical_layout({**config, "num_hidden_layers": MAX_LAYERS + 1})
    assert len(physical_layout({**config, "num_hidden_layers": MAX_LAYERS})) > MAX_LAYERS


def test_a_device_is_no_configuration():
    with error_at("config", "not a regular file"):
        load_config(Path("/dev/zero"), field="config")
