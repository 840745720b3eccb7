import pytest

from modnorm.checkpoint.config import flag, load_config, optional_positive, positive
from modnorm.errors import InvalidInputError


def test_config_is_read_from_file_or_directory(tmp_path):
    (tmp_path / "config.json").write_text('{"vocab_size": 3}')
    assert load_config(tmp_path) == load_config(tmp_path / "config.json") == {"vocab_size": 3}


@pytest.mark.parametrize("text", ["", "[1]", "{", "3", "[" * 100_000])
def test_what_is_not_an_object_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidInputError, match=r"config\.json"):
        load_config(tmp_path)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidInputError) as caught:
        load_config(tmp_path)
    assert caught.value.field == "model.config"
    assert caught.value.remedy


@pytest.mark.parametrize("value", [0, -1, 2.0, "3", True, [1]])
def test_sizes_must_be_positive_integers(value):
    with pytest.raises(InvalidInputError) as caught:
        positive({"hidden_size": value}, "hidden_size")
    assert caught.value.field == "model.config.hidden_size"


def test_missing_size_is_named():
    with pytest.raises(InvalidInputError, match="lacks hidden_size"):
        positive({}, "hidden_size")
    assert optional_positive({"head_dim": None}, "head_dim") is None


def test_flags_are_booleans():
    assert flag({"mlp_bias": True}, "mlp_bias")
    assert not flag({}, "mlp_bias")
    with pytest.raises(InvalidInputError) as caught:
        flag({"mlp_bias": 1}, "mlp_bias")
    assert caught.value.field == "model.config.mlp_bias"
