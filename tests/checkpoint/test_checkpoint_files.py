import errno
import hashlib
import json
from pathlib import Path

import pytest

from modnorm.checkpoint.checkpoint_files import checkpoint_digest, require_unchanged, weight_files
from modnorm.errors import InvalidInputError, PreconditionError
from tests.faults import error_at


def write(directory, **files):
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def test_digest_covers_every_file_that_decides_answers(tmp_path):
    write(tmp_path, model__safetensors="w", config__json="{}", tokenizer__json="t")
    digests = {checkpoint_digest(tmp_path)}
    (tmp_path / "additional_chat_templates").mkdir()
    names = (
        *("model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"),
        # they replace the two files before
        *("additional_chat_templates/default.jinja", "tokenizer.5.0.0.json"),
    )
    for name in names:
        (tmp_path / name).write_text("another content")
        digests.add(checkpoint_digest(tmp_path))
    assert len(digests) == 1 + len(names)


def test_digest_is_of_names_and_contents_in_the_order_of_names(tmp_path):
    shards = {f"model-{number}.safetensors": f"weights {number}" for number in (3, 1, 2)}
    index = json.dumps({"weight_map": {name: name for name in shards}})
    write(tmp_path, **shards, **{"model.safetensors.index.json": index, "config.json": "{}"})
    digest = hashlib.sha256()
    for name, content in sorted({**shards, "config.json": "{}"}.items()):
        digest.update(f"{name}\0{hashlib.sha256(content.encode()).hexdigest()}\n".encode())
    assert checkpoint_digest(tmp_path) == digest.hexdigest()


@pytest.mark.parametrize(
    "index",
    [
        {},
        [],
        {"weight_map": {}},
        {"weight_map": {"w": "model-00001-of-00002.safetensors"}},
        {"weight_map": {"w": "../model.safetensors"}},
    ],
)
def test_a_broken_index_is_refused(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidInputError):
        weight_files(tmp_path)


@pytest.mark.parametrize("file", ["model-1.safetensors", "model-2.safetensors", "tokenizer.json"])
def test_files_that_cannot_be_read_are_refused_by_their_name(tmp_path, monkeypatch, file):
    shards = {f"model-{number}.safetensors": "weights" for number in (1, 2)}
    index = json.dumps({"weight_map": {name: name for name in shards}})
    write(tmp_path, **shards, **{"model.safetensors.index.json": index, "tokenizer.json": "{}"})
    opened = Path.open

    def refusing(path, *arguments, **options):  # root can open a file of any mode
        if path.name == file:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refusing)
    with error_at("model.name", f"{file}: Permission denied"):
        checkpoint_digest(tmp_path)


def test_a_replaced_model_is_refused(tmp_path):
    write(tmp_path, model__safetensors="w", config__json="{}")
    digest = checkpoint_digest(tmp_path)
    require_unchanged(tmp_path, digest)
    write(tmp_path, model__safetensors="other")
    with pytest.raises(PreconditionError, match=f"was model {digest[:12]}, and is model "):
        require_unchanged(tmp_path, digest)
