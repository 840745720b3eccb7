"""A checkpoint is written whole or not at all."""

import shutil

import pytest
import torch
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerFast

from modnorm.checkpoint import writing
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.writing import cast_checkpoint
from modnorm.errors import InvalidInputError, UnavailableError
from tests.faults import error_at

TINY = resolve_checkpoint("tiny-thicket")


def fill_the_disk(monkeypatch, after):
    def fail(*_arguments, **_options):
        raise after

    monkeypatch.setattr(writing, "save_file", fail)


@pytest.mark.parametrize(
    ("fault", "made"),
    [(SafetensorError("I/O error: No space left"), False), (OSError(28, "No space left"), True)],
)
def test_a_disk_that_is_full_leaves_nothing_and_the_next_try_succeeds(
    tmp_path, monkeypatch, fault, made
):
    out = tmp_path / "models" / "out"
    if made:
        out.mkdir(parents=True)
    with monkeypatch.context() as patch:
        fill_the_disk(patch, fault)
        with pytest.raises(UnavailableError, match="No space left") as caught:
            cast_checkpoint(TINY, torch.float16, out)
    assert caught.value.field == "out"
    assert list((tmp_path / "models").rglob("*")) == ([out] if made else [])

    cast_checkpoint(TINY, torch.float16, out)

    assert list(out.parent.iterdir()) == [out]
    assert not [path for path in out.iterdir() if path.is_dir()]
    assert resolve_checkpoint(str(out)).digest


def test_weights_of_other_formats_are_not_copied_and_every_template_is(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(TINY.directory, source, copy_function=shutil.copyfile)
    source.chmod(0o755)
    others = ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "old.Q8_0.gguf", "model.onnx")
    for name in (*others, "pytorch_model.bin", "pytorch_model.bin.index.json"):
        (source / name).write_bytes(b"the base")
    (source / "README.md").write_text("what it is")
    folder = source / "additional_chat_templates"
    folder.mkdir()
    (folder / "tool_use.jinja").write_text("{{ messages[0].content }}")

    for out in (tmp_path / "new", tmp_path / "empty"):
        if out.name == "empty":
            out.mkdir()
        cast_checkpoint(resolve_checkpoint(str(source)), torch.float16, out)
        kept = {path.name for path in source.iterdir()} - {path.name for path in out.iterdir()}
        assert kept == {*others, "pytorch_model.bin", "pytorch_model.bin.index.json"}
        templates = PreTrainedTokenizerFast.from_pretrained(out).chat_template
        assert templates.keys() == {"default", "tool_use"}


def test_a_directory_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for out in (tmp_path / "file", tmp_path / "file" / "out", tmp_path / "link"):
        with error_at("out", "cannot write"):
            writing.require_new(out)

    def refuse(**_place):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(writing, "mkdtemp", refuse)
    with pytest.raises(InvalidInputError, match="Read-only file system"):
        writing.require_new(tmp_path / "out")
