"""The pieces of an answer are its text, for tokenizers that decode in different ways."""

import json
import shutil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from modnorm.checkpoint.prompts import AnswerStream, PromptEncoder
from modnorm.checkpoint.reference import resolve_checkpoint

UNFINISHED = "\ufffd"
BUNDLED = resolve_checkpoint("tiny-thicket")
ENDED, STARTED, STOPPED = 0, 1, 2
"""The bundled model's special tokens; the last one is its stop token."""


class CountingEncoder(PromptEncoder):
    """Counts the tokens that it decodes."""

    decoded = 0

    def decode(self, ids):
        self.decoded += len(ids)
        return super().decode(ids)


def with_tokenizer(directory, tokenizer, stops):
    """Return an encoder with a tokenizer of its own, beside the bundled model's other files."""
    shutil.copytree(BUNDLED.directory, directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = directory / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token": "</s>"}))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
    return PromptEncoder(resolve_checkpoint(str(directory)))


def sentencepiece_like():
    """Return a tokenizer with byte tokens, spaces as a sign, and special and plain stop tokens."""
    texts = ["\u2581", "\u2581so", "\u2581\u2581", "a", "7", "\u4f60", UNFINISHED, "<0x", "."]
    entries = ["<unk>", "</s>", "<tool>", "END", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {entry: number for number, entry in enumerate([*entries, *texts])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    special = [AddedToken(entry, special=True) for entry in entries[:3]]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken("END", special=False)])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """Return encoders by kind; all stop at their token 1 or 3, or at 2."""
    folder = tmp_path_factory.mktemp("tokenizers")
    metaspace = sentencepiece_like()
    metaspace.decoder = decoders.Metaspace()
    return {
        "bytes": PromptEncoder(BUNDLED),
        "fallback": with_tokenizer(folder / "fallback", sentencepiece_like(), [1, 3]),
        "metaspace": with_tokenizer(folder / "metaspace", metaspace, [1, 3]),
    }


def tokens_of(encoder):
    """Random tokens, and ids beyond the vocabulary: models have embeddings for some."""
    return st.integers(0, len(encoder.tokenizer) + 3)


def characters(encoder):
    return st.text(max_size=8).map(encoder.encode_text)


def parts_of(encoder):
    """Lists of parts of an answer: random tokens, and the tokens of texts."""
    token = tokens_of(encoder)
    byte = st.integers(4, 259)
    part = st.one_of(st.lists(token, max_size=6), st.lists(byte, max_size=6), characters(encoder))
    return st.lists(part, max_size=8)


@pytest.mark.parametrize("kind", ["bytes", "fallback", "metaspace"])
@given(data=st.data())
def test_the_pieces_of_random_tokens_are_the_answer(encoders, kind, data):
    encoder = encoders[kind]
    parts = data.draw(parts_of(encoder))
    ids = [token for part in parts for token in part]
    stream = AnswerStream(encoder)
    assert "".join(map(stream.add, parts)) + stream.end() == encoder.answer(ids)
    stream = AnswerStream(encoder)
    assert "".join(stream.add([token]) for token in ids) + stream.end() == encoder.answer(ids)


@given(text=st.text(max_size=40), end=st.sampled_from([[], [STOPPED], [ENDED], [STARTED]]))
@example(text="so: \u4f60\u597d \U0001f600\n#### 7", end=[STOPPED])
def test_characters_of_several_tokens_come_whole(encoders, text, end):
    encoder = encoders["bytes"]
    stream = AnswerStream(encoder)
    pieces = [stream.add([token]) for token in [*encoder.encode_text(text), *end]]
    assert "".join(pieces) == text.rstrip(UNFINISHED)
    if UNFINISHED not in text:
        assert not any(UNFINISHED in piece for piece in pieces)


def test_a_stop_token_with_text_is_left_out_at_the_end_only(encoders):
    encoder = encoders["fallback"]
    stop, letter = encoder.tokenizer.convert_tokens_to_ids(["END", "a"])
    stream = AnswerStream(encoder)
    assert [stream.add([token]) for token in (letter, stop, letter, stop)] == ["a", "", "ENDa", ""]
    assert stream.end() == ""


@pytest.mark.parametrize("kind", ["text", "no character", "special"])
def test_the_work_of_a_token_does_not_grow_with_the_answer(kind):
    encoder = CountingEncoder(BUNDLED)
    ids = {
        "text": encoder.encode_text("44 + 35 = 79 \u4f60\u597d\U0001f600 "),
        "no character": encoder.encode_text("\U0001f600")[:1],
        "special": [ENDED],
    }[kind]
    encoder.decoded = 0
    stream, answer = AnswerStream(encoder), (ids * 1000)[:1000]
    text = "".join(stream.add([token]) for token in answer) + stream.end()
    assert text == encoder.answer(answer)
    assert encoder.decoded <= 20 * len(answer)
