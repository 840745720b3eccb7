"""The files of a tokenizer, checked by name before a library reads them."""

from collections.abc import Mapping
from pathlib import Path

from modnorm.checkpoint.config import load_json
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError

_VOCABULARIES = ("tokenizer.json", "vocab.json", "tokenizer.model")
_TEMPLATES = ("chat_template.jinja", "additional_chat_templates/default.jinja")
_NAMED_TEMPLATES = "additional_chat_templates/*.jinja"
_SETTINGS = "tokenizer_config.json"


def vocabulary_file(checkpoint: Checkpoint) -> str:
    """Return the name of the file from which the tokenizer of a checkpoint is read."""
    for name in _VOCABULARIES:
        if (checkpoint.directory / name).is_file():
            return name
    raise unusable_tokenizer(checkpoint, f"none of {', '.join(_VOCABULARIES)} exists")


def check_tokenizer_files(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint without a vocabulary or without a default chat template.

    It parses no vocabulary: `PromptEncoder` may still refuse the files.
    """
    vocabulary_file(checkpoint)
    if not _has_template(checkpoint.directory):
        raise InvalidInputError(
            f"{checkpoint.name} has no chat template",
            field="model.name",
            remedy="use an instruction-tuned checkpoint",
        )


def _has_template(directory: Path) -> bool:
    """Whether the tokenizer will have a template; files replace those of its settings."""
    found = [directory / name for name in _TEMPLATES if (directory / name).is_file()]
    if found or any(directory.glob(_NAMED_TEMPLATES)):
        return bool(found) and found[-1].stat().st_size > 0
    file = directory / _SETTINGS
    settings = load_json(file) if file.is_file() else None
    template = settings.get("chat_template") if isinstance(settings, Mapping) else None
    if isinstance(template, list):
        named = (each for each in template if isinstance(each, Mapping))
        template = {each.get("name"): each.get("template") for each in named}
    return bool(template.get("default") if isinstance(template, Mapping) else template)


def unusable_tokenizer(checkpoint: Checkpoint, reason: str) -> InvalidInputError:
    """Return the error for a tokenizer that cannot be read."""
    return InvalidInputError(
        f"{checkpoint.name} has no usable tokenizer: {reason}",
        field="model.name",
        remedy="put the tokenizer's files next to the weights",
    )
