import json
import shutil

import pytest
from tokenizers import Tokenizer

from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError
from modnorm.tasks.protocol import Message
from tests.faults import error_at

QUESTION = (Message("user", "Using the numbers [3, 7, 25], make 46.\nÉtape  2"),)


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the bundled model whose files a test may change."""
    directory = tmp_path / "model"
    shutil.copytree(resolve_checkpoint("tiny-thicket").directory, directory)
    return directory


def edit(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def encoder(directory="tiny-thicket"):
    return PromptEncoder(resolve_checkpoint(str(directory)))


def refused(directory):
    with pytest.raises(InvalidInputError) as caught:
        encoder(directory)
    assert caught.value.remedy
    return caught.value


def test_the_tokenizer_file_is_used_unchanged():
    raw = Tokenizer.from_file(str(resolve_checkpoint("tiny-thicket").directory / "tokenizer.json"))
    text = f"<|im_start|>user\n{QUESTION[0].content}<|im_end|>\n<|im_start|>assistant\n"
    assert encoder().encode(QUESTION) == raw.encode(text, add_special_tokens=False).ids


def test_an_answer_omits_its_stop_token(copy):
    prompts = encoder()
    four, blank = prompts.encode_text("4"), prompts.encode_text(" ")
    assert prompts.answer([*four, *blank, 2]) == prompts.answer([*four, *blank]) == "4 "
    assert prompts.answer([]) == prompts.answer([2]) == ""
    edit(copy / "generation_config.json", eos_token_id=[2, *blank])
    assert encoder(copy).answer([*four, *blank]) == "4"


def test_stop_tokens_come_from_the_generation_config(copy):
    assert encoder().stop_ids == {2}
    edit(copy / "generation_config.json", eos_token_id=[2, 0])
    assert encoder(copy).stop_ids == {0, 2}


def test_a_model_that_never_stops_is_refused(copy):
    edit(copy / "generation_config.json", eos_token_id=None)
    edit(copy / "config.json", eos_token_id=None)
    edit(copy / "tokenizer_config.json", eos_token=None)
    assert refused(copy).field == "model.config.eos_token_id"


@pytest.mark.parametrize("printed", ["date_string", "strftime_now('%d %b %Y')"])
def test_the_date_is_pinned(copy, printed):
    template = f"{{{{ {printed} }}}}: {{{{ messages[0]['content'] }}}}"
    (copy / "chat_template.jinja").write_text(template)
    prompts = encoder(copy)
    assert prompts.decode(prompts.encode([Message("user", "hi")])) == "11 Aug 2026: hi"


def test_two_beginning_tokens_are_refused(copy):
    edit(copy / "tokenizer_config.json", bos_token="<|im_start|>")
    (copy / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0]['content'] }}")
    prompts = encoder(copy)
    assert prompts.encode([Message("user", "hi")])[0] == 1
    with pytest.raises(InvalidInputError, match="two beginning"):
        prompts.encode([Message("user", "<|im_start|>hi")])


def test_a_model_without_template_is_refused(copy):
    (copy / "chat_template.jinja").unlink()
    assert "chat template" in str(refused(copy))


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{{ messages[0]['content'] + [] }}", "can only concatenate str"),
    ],
)
def test_a_template_that_refuses_the_messages_is_an_input_error(copy, template, reason):
    (copy / "chat_template.jinja").write_text(template)
    with pytest.raises(InvalidInputError, match=reason):
        encoder(copy).encode(QUESTION)


def test_prompts_must_leave_room_for_the_completion():
    model = resolve_checkpoint("tiny-thicket")
    assert check_fit([[1] * 3, [1] * 48], 2000, model) == 48
    assert check_fit([], 2000, model) == 0
    for length, room in ((49, model.max_position - 49), (model.max_position, 0)):
        with error_at("prompts.1", f" {length} prompt tokens") as caught:
            check_fit([[1] * 48, [1] * length], 2000, model)
        cap = f"lower task.max_tokens to {room}, or "
        assert caught.value.remedy == f"{cap if room else ''}shorten or drop the row"


@pytest.mark.parametrize("token", [1024, -1])
def test_tokens_without_embeddings_are_refused(token):
    with error_at("prompts.1", f"token {token}, .* of 0 to 1023"):
        check_fit([[0, 1023], [5, token, 6]], 1, resolve_checkpoint("tiny-thicket"))
