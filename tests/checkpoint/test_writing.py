"""A checkpoint is written whole or not at all; in another dtype it is the same, rounded.

The decoder of a multimodal model is written back into it, and any tool loads the result.
"""

import json
import os
import shutil
from contextlib import suppress
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import Gemma3ForConditionalGeneration, PreTrainedTokenizerFast

from modnorm.checkpoint import writing
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import cast_checkpoint
from modnorm.engines import load_engine
from modnorm.errors import ConflictError, InvalidInputError, UnavailableError
from modnorm.files import own_draft
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.exports import export_candidate
from modnorm.perturbation.methods import build_scale_map
from tests.checkpoint.conftest import ODD_SIZES
from tests.faults import error_at
from tests.random_models import random_model

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


def test_the_draft_of_a_killed_process_is_removed(tmp_path):
    for out in (tmp_path / "models" / "new", tmp_path / "empty"):
        place = out if out.name == "empty" else out.parent
        place.mkdir()
        old, new = own_draft(place / "out"), own_draft(place / "out")
        for draft in (old, new):
            draft.mkdir()
            (draft / "model.safetensors").touch()
            os.utime(draft, (0.0, 0.0))
        os.utime(old / "model.safetensors", (0.0, 0.0))
        with suppress(ConflictError):  # the new one lies in the target
            writing.require_new(out)
        assert list(place.iterdir()) == [new]  # another process may be at work on it


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

    def refuse(_place):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(writing, "own_draft", refuse)
    with pytest.raises(InvalidInputError, match="Read-only file system"):
        writing.require_new(tmp_path / "out")


def test_each_weight_is_rounded_once(tmp_path):
    dtype = torch.float16
    digest = cast_checkpoint(TINY, dtype, tmp_path / "model")

    written = resolve_checkpoint(str(tmp_path / "model"))
    stored, original = CheckpointWeights(written), CheckpointWeights(TINY)
    assert stored.dtype == dtype
    assert weights_sha256(stored.layout, stored.read) == digest
    for tensor in original.layout:
        assert torch.equal(stored.read(tensor), original.read(tensor).to(dtype))
    engine = load_engine("transformers", written)
    assert engine.weights_sha256() == digest
    engine.close()


def test_the_card_of_a_model_says_that_it_was_cast(tmp_path):
    source = tmp_path / "source"
    cast_checkpoint(TINY, torch.bfloat16, source)
    assert not (source / "README.md").exists()
    (source / "README.md").write_text("---\ntags: []\n---\n\n# Mine\n")
    cast_checkpoint(resolve_checkpoint(str(source)), torch.float16, tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert card.startswith("---\ntags: []\n---\n\n# Mine\n\n## Cast\n")
    assert "wrote the weights in float16" in card


def test_overflowing_weights_are_refused_before_anything_is_written(tmp_path):
    source = tmp_path / "source"
    cast_checkpoint(TINY, torch.bfloat16, source)
    tensors = load_file(source / "model.safetensors")
    tensors["model.norm.weight"][3] = 1e6
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(InvalidInputError, match="weight has 999424, which float16"):
        cast_checkpoint(resolve_checkpoint(str(source)), torch.float16, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(ConflictError, match="not empty"):
        cast_checkpoint(TINY, torch.float16, source)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_codes_of_a_quantisation_are_not_cast(tmp_path, dtype):
    source, name = tmp_path / "source", "model.embed_tokens.weight"
    cast_checkpoint(TINY, torch.bfloat16, source)
    tensors = load_file(source / "model.safetensors")
    tensors[name] = tensors[name].to(dtype)
    tensors["lm_head.weight"] = tensors[name].clone()
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})

    with error_at("model.name", "may be quantised"):
        cast_checkpoint(resolve_checkpoint(str(source)), torch.bfloat16, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("declared", "mixed"), [("float16", False), ("float64", True)])
def test_what_needs_casting_is_cast(tmp_path, declared, mixed):
    source = tmp_path / "source"
    cast_checkpoint(TINY, torch.bfloat16, source)
    config = json.loads((source / "config.json").read_text())
    del config["dtype"]
    (source / "config.json").write_text(json.dumps({**config, "torch_dtype": declared}))
    if mixed:
        tensors = load_file(source / "model.safetensors")
        names = ("model.norm.weight", "model.embed_tokens.weight")
        for name, dtype in zip(names, (torch.float64, torch.float32), strict=True):
            tensors[name] = tensors[name].to(dtype)
        save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(InvalidInputError, match="is stored as") as refused:
            CheckpointWeights(resolve_checkpoint(str(source)))
        assert "modnorm cast" in (refused.value.remedy or "")

    digest = cast_checkpoint(resolve_checkpoint(str(source)), torch.bfloat16, tmp_path / "out")

    stored = CheckpointWeights(TINY)
    assert digest == weights_sha256(stored.layout, stored.read)
    assert CheckpointWeights(resolve_checkpoint(str(tmp_path / "out"))).dtype == torch.bfloat16


@pytest.fixture
def gemma(tmp_path):
    made = random_model("gemma3", **ODD_SIZES)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    made.save_pretrained(tmp_path / "gemma")
    return tmp_path / "gemma"


def load_whole(directory):
    """Load a model by transformers, and check that the file has every weight."""
    loaded: Any = Gemma3ForConditionalGeneration.from_pretrained(
        directory, output_loading_info=True
    )
    model, found = loaded
    assert not any(found.values())
    return model.state_dict()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_cast_model_is_the_whole_model_rounded(gemma, tmp_path, dtype):
    digest = cast_checkpoint(resolve_checkpoint(str(gemma)), dtype, tmp_path / "out")
    before, after = load_whole(gemma), load_whole(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], before[name].to(dtype)) for name in before)
    stored = CheckpointWeights(resolve_checkpoint(str(tmp_path / "out")))
    assert weights_sha256(stored.layout, stored.read) == digest


def test_an_exported_candidate_keeps_the_tensors_outside_of_its_decoder(gemma, tmp_path):
    checkpoint = resolve_checkpoint(str(gemma))
    scale_map = build_scale_map("randopt", checkpoint)
    drawn = Descriptor("portable-v1", 7, "randopt", 0.01, scale_map.digest)
    export_candidate(checkpoint, drawn, scale_map, tmp_path / "out")
    before, after = load_whole(gemma), load_whole(tmp_path / "out")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    decoder = {name for name in before if "language_model" in name or "lm_head" in name}
    assert changed == decoder
