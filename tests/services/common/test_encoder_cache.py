import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.services.common import encoder_cache
from modnorm.services.common.encoder_cache import EncoderCache
from modnorm.tasks.protocol import Message

QUESTION = (Message("user", "Using the numbers [3, 7, 25], make 46."),)


@pytest.fixture(scope="module")
def checkpoint():
    return resolve_checkpoint("tiny-thicket")


@pytest.fixture
def copy(tmp_path, checkpoint):
    """Copy the bundled model, with a stop token of its own by number."""

    def make(number):
        directory = tmp_path / str(number)
        shutil.copytree(checkpoint.directory, directory)
        (directory / "generation_config.json").write_text(f'{{"eos_token_id": {number}}}')
        return resolve_checkpoint(str(directory))

    return make


def lent(cache, checkpoint):
    with cache.lend(checkpoint) as encoder:
        return encoder


def test_models_that_differ_in_weights_only_share_an_encoder(checkpoint, tmp_path):
    shutil.copytree(checkpoint.directory, tmp_path / "student")
    weights = tmp_path / "student" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    student = resolve_checkpoint(str(tmp_path / "student"))
    assert student.digest != checkpoint.digest
    cache = EncoderCache()
    assert lent(cache, student) is lent(cache, checkpoint)


def test_a_replaced_file_gives_another_encoder(copy):
    cache, model = EncoderCache(), copy(1)
    assert 1 in lent(cache, model).stop_ids
    (model.directory / "generation_config.json").write_text('{"eos_token_id": 22}')
    assert 22 in lent(cache, model).stop_ids


def test_an_encoder_of_files_that_were_replaced_meanwhile_is_not_kept(copy, monkeypatch):
    cache, model = EncoderCache(), copy(1)
    settings = model.directory / "generation_config.json"

    def replace_and_load(checkpoint):
        settings.write_text('{"eos_token_id": 22}')
        return PromptEncoder(checkpoint)

    monkeypatch.setattr(encoder_cache, "PromptEncoder", replace_and_load)
    lent(cache, model)
    monkeypatch.undo()
    settings.write_text('{"eos_token_id": 1}')
    assert 22 not in lent(cache, model).stop_ids


def test_one_thread_at_a_time_uses_an_encoder(checkpoint):
    cache, inside, most = EncoderCache(), [], []

    def use(_):
        with cache.lend(checkpoint) as encoder:
            inside.append(encoder)
            most.append(len(inside))
            encoder.encode(QUESTION)
            inside.pop()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, range(40)))
    assert set(most) == {1}
