"""Whether `AutoTokenizer` reproduces prompts."""

import json
import shutil

import transformers
from packaging.version import Version

from modnorm.checkpoint.prompts import differing_prompts
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.tasks import Message

QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONVERSATIONS = [(Message("user", "What is 1 + 2?"),), (Message("user", "7"),)]


def copied(tmp_path, change=lambda _content: None):
    """Return a copy of the bundled model without `auto_map`, with a changed `tokenizer.json`."""
    source = resolve_checkpoint("tiny-thicket").directory
    copy = shutil.copytree(source, tmp_path / "model", copy_function=shutil.copyfile)
    for name, edit in (("tokenizer.json", change), ("tokenizer_config.json", without_auto_map)):
        content = json.loads((copy / name).read_text())
        edit(content)
        (copy / name).write_text(json.dumps(content))
    return resolve_checkpoint(str(copy))


def without_auto_map(content):
    del content["auto_map"]


def test_the_tokenizer_of_the_bundled_model_is_reproduced():
    assert differing_prompts(resolve_checkpoint("tiny-thicket"), CONVERSATIONS) == ()


def test_the_splitting_rule_of_a_family_can_change_prompts(tmp_path):
    """Transformers before 5.8 keep the rule of `tokenizer.json`."""
    replaces = Version(transformers.__version__) >= Version("5.8")
    assert differing_prompts(copied(tmp_path), CONVERSATIONS) == ((0,) if replaces else ())


def test_a_tokenizer_with_the_rule_of_its_family_is_reproduced(tmp_path):
    def split_as_family(content):
        content["normalizer"] = {"type": "NFC"}
        content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN2

    assert differing_prompts(copied(tmp_path, split_as_family), CONVERSATIONS) == ()
