import pytest

from modnorm.checkpoint.checkpoint_files import MAX_LAYERS, load_config, positive
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError
from tests.faults import error_at


@pytest.mark.parametrize("text", ["", "[1]", "{", "3", "[" * 100_000])
def test_a_config_that_is_not_an_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"config\.json"):
        load_config(tmp_path)


@pytest.mark.parametrize("value", [0, -1, 2.0, "3", True, [1]])
def test_sizes_must_be_positive_integers(value):
    with error_at("model.config.hidden_size"):
        positive({"hidden_size": value}, "hidden_size")


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
    with error_at(f"model.config.{key}", f"{key} is {value:,}"):
        positive({key: value}, key)


def test_a_layout_with_too_many_layers_is_not_built():
    config = dict(load_config(resolve_checkpoint("tiny-thicket").directory))
    with error_at("model.config.num_hidden_layers", "num_hidden_layers is 1,001"):
        physical_layout({**config, "num_hidden_layers": MAX_LAYERS + 1})
    assert len(physical_layout({**config, "num_hidden_layers": MAX_LAYERS})) > MAX_LAYERS
