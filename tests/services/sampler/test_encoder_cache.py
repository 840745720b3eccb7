import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError
from modnorm.services.sampler import encoder_cache
from modnorm.services.sampler.encoder_cache import KEPT, EncoderCache
from modnorm.tasks.protocol import Message
from verification.labs.waiting import HANG_SECONDS

QUESTION = (Message("user", "Using the numbers [3, 7, 25], make 46."),)


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


def test_an_encoder_is_loaded_once(checkpoint):
    cache = EncoderCache()
    encoder = lent(cache, checkpoint)
    assert lent(cache, checkpoint) is encoder
    assert encoder.encode(QUESTION) == PromptEncoder(checkpoint).encode(QUESTION)


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


def test_the_encoder_unused_for_longest_is_dropped(copy):
    cache, models = EncoderCache(), [copy(number) for number in range(KEPT + 1)]
    encoders = [lent(cache, model) for model in models[:KEPT]]
    assert lent(cache, models[0]) is encoders[0]
    assert models[KEPT].directory.name == str(KEPT)
    assert KEPT in lent(cache, models[KEPT]).stop_ids
    assert lent(cache, models[0]) is encoders[0]
    assert lent(cache, models[1]) is not encoders[1]


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


def test_the_encoder_of_another_model_is_not_waited_for(checkpoint, copy):
    cache, other = EncoderCache(), copy(1)
    with cache.lend(checkpoint), ThreadPoolExecutor(1) as threads:
        assert threads.submit(lent, cache, other).result(HANG_SECONDS)


def test_a_tokenizer_that_cannot_be_loaded_is_tried_again(copy):
    cache, model = EncoderCache(), copy(1)
    tokenizer = model.directory / "tokenizer.json"
    content = tokenizer.read_bytes()
    tokenizer.write_bytes(b"{}")
    with pytest.raises(InvalidInputError), cache.lend(model):
        pass
    tokenizer.write_bytes(content)
    assert lent(cache, model)
