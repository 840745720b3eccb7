"""Whether `AutoTokenizer` reproduces prompts."""

import json
import shutil

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.tokenizer_check import differing_prompts
from modnorm.tasks import Message

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONVERSATIONS = [(Message("user", "What is 1 + 2?"),), (Message("user", "7"),)]


def copied(tmp_path, change):
    """Return a copy of the bundled model with another `tokenizer.json`."""
    source = resolve_checkpoint("tiny-thicket").directory
    copy = shutil.copytree(source, tmp_path / "model", copy_function=shutil.copyfile)
    content = json.loads((copy / "tokenizer.json").read_text())
    change(content)
    (copy / "tokenizer.json").write_text(json.dumps(content))
    return resolve_checkpoint(str(copy))


def test_the_splitting_rule_of_the_family_changes_prompts_of_the_bundled_model():
    assert differing_prompts(resolve_checkpoint("tiny-thicket"), CONVERSATIONS) == (0,)


def test_a_tokenizer_with_the_rule_of_its_family_is_reproduced(tmp_path):
    def split_as_family(content):
        content["normalizer"] = {"type": "NFC"}
        content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN2

    assert differing_prompts(copied(tmp_path, split_as_family), CONVERSATIONS) == ()
