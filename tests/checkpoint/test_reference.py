import pytest

from modnorm.checkpoint.reference import bundled_models, resolve_checkpoint
from modnorm.errors import InvalidInputError


def refused(name, **options):
    with pytest.raises(InvalidInputError) as caught:
        resolve_checkpoint(name, **options)
    return caught.value


def test_the_bundled_model_is_found_by_name_with_any_roots():
    checkpoint = resolve_checkpoint("tiny-thicket", roots=())
    assert "tiny-thicket" in bundled_models()
    assert checkpoint.config["model_type"] == "qwen2"
    assert checkpoint.revision is None
    assert checkpoint.max_position == 2048
    assert len(checkpoint.digest) == 64
    assert checkpoint.digest == resolve_checkpoint("tiny-thicket").digest


def test_a_local_directory_is_a_model(save_model):
    directory = save_model("llama")
    checkpoint = resolve_checkpoint(str(directory))
    assert checkpoint.directory == directory.resolve()
    assert checkpoint.name == str(directory)
    assert checkpoint.config["model_type"] == "llama"


def test_local_models_must_lie_under_a_root(save_model, tmp_path_factory):
    directory = save_model()
    assert resolve_checkpoint(str(directory), roots=[directory.parent])
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert refused(str(directory), roots=[elsewhere]).field == "model.name"
    assert refused(str(directory), roots=()).field == "model.name"
    templates = directory / "additional_chat_templates"
    templates.mkdir()
    (elsewhere / "secret").write_text("{{ messages }}")
    (templates / "default.jinja").symlink_to(elsewhere / "secret")
    assert refused(str(directory), roots=[directory]).field == "model.name"
    escape = f"{elsewhere}/../{directory.relative_to(elsewhere.parent)}"
    assert refused(escape, roots=[elsewhere]).field == "model.name"


@pytest.mark.parametrize(
    "name",
    [
        "no-such-model",
        "./nowhere",
        "/nowhere",
        "",
        "a/b/c",
        "..",
        "a b/c",
        "x" * 5000,
        "~nobody-here/x",
        "a\0b",
    ],
)
def test_unknown_names_are_refused(name):
    assert refused(name, roots=()).field == "model.name"


@pytest.mark.parametrize(
    ("key", "value"), [("model_type", "mixtral"), ("max_position_embeddings", None)]
)
def test_unsupported_checkpoints_are_refused(save_model, edit_config, key, value):
    directory = save_model()
    edit_config(directory, **{key: value})
    assert refused(str(directory)).field == f"model.config.{key}"
