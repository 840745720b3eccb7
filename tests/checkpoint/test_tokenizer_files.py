"""The check of a tokenizer's files by name, which must refuse nothing that an encoder accepts."""

import json
import shutil
from itertools import chain, combinations

import pytest

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import check_tokenizer_files, resolve_checkpoint
from modnorm.errors import InvalidInputError

MODEL = resolve_checkpoint("tiny-thicket")
TEMPLATE = "{{ messages[0]['content'] }}"
NAMED = [{"name": "default", "template": TEMPLATE}]
OTHER = [{"name": "tool_use", "template": TEMPLATE}]
CONTENTS = {
    "tokenizer.json": (MODEL.directory / "tokenizer.json").read_text(),
    "chat_template.jinja": TEMPLATE,
    "additional_chat_templates/default.jinja": TEMPLATE,
    "chat_template.json": json.dumps({"chat_template": TEMPLATE}),
    "tokenizer_config.json": json.dumps({"eos_token": "<|im_end|>"}),
    "with a template": json.dumps({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}),
    "without a default": json.dumps({"eos_token": "<|im_end|>", "chat_template": OTHER}),
    "with named templates": json.dumps({"eos_token": "<|im_end|>", "chat_template": NAMED}),
}
"""Contents of the files that decide; the last three are those of `tokenizer_config.json`, too."""


def subsets():
    names = list(CONTENTS)
    every = chain.from_iterable(combinations(names, size) for size in range(3))
    settings = {name for name in names if "." not in name or name == "tokenizer_config.json"}
    return [each for each in every if len(settings & {*each}) <= 1]


def accepts(check):
    try:
        check()
    except InvalidInputError as error:
        return str(error)
    return "accepted"


@pytest.mark.parametrize("names", subsets(), ids=" + ".join)
def test_the_check_and_the_encoder_agree(names, tmp_path):
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(MODEL.directory / name, tmp_path)
    for name in names:
        file = tmp_path / (name if "." in name else "tokenizer_config.json")
        file.parent.mkdir(exist_ok=True)
        file.write_text(CONTENTS[name])
    checkpoint = resolve_checkpoint(str(tmp_path))
    found = accepts(lambda: check_tokenizer_files(checkpoint))
    assert found == accepts(lambda: PromptEncoder(checkpoint))
