"""Resolution of a model name: bundled model, local directory or Hugging Face repository."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from modnorm.checkpoint.checkpoint_files import (
    checkpoint_digest,
    load_config,
    load_json,
    positive,
    refuse_adapter,
    weight_files,
)
from modnorm.checkpoint.families import decoder_config, physical_layout
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.files import existing_path, lies_under
from modnorm.hints import did_you_mean

_BUNDLED = Path(__file__).parent.parent / "bundled" / "models"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Checkpoint:
    """A supported model on disk: safetensors, configuration and tokenizer."""

    name: str
    revision: str | None
    """Commit of a Hugging Face repository; None for a bundled or local model."""
    directory: Path
    config: Mapping[str, object]
    """The `config.json`, or the decoder's part of it (`decoder_config`)."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 over configuration, tokenizer, chat template and weights."""
        return checkpoint_digest(self.directory)

    @property
    def location(self) -> str:
        """Its name for other tools: the repository, or the directory on this machine."""
        return self.name if self.revision is not None else str(self.directory)

    @property
    def max_position(self) -> int:
        """Longest sequence in tokens, prompt and completion together."""
        return positive(self.config, "max_position_embeddings")


def bundled_models() -> tuple[str, ...]:
    """Return the names of the models in the package, sorted."""
    return tuple(sorted(path.parent.name for path in _BUNDLED.glob("*/config.json")))


def resolve_checkpoint(
    name: str,
    revision: str | None = None,
    *,
    roots: Sequence[Path] | None = None,
    on_bytes: Callable[[], object] | None = None,
) -> Checkpoint:
    """Return the model of a name: bundled, then local, then on the Hugging Face Hub."""
    local = find_local_checkpoint(name, revision, roots=roots)
    if local is not None:
        return local
    from modnorm.checkpoint.hub import fetch_checkpoint  # noqa: PLC0415 - loads httpx

    snapshot = fetch_checkpoint(name, revision, on_bytes)
    return _open(name, snapshot.name, snapshot)


def find_local_checkpoint(
    name: str, revision: str | None = None, *, roots: Sequence[Path] | None = None
) -> Checkpoint | None:
    """Return a model on this machine; None if only the Hugging Face Hub may have it."""
    local = _local_directory(name, roots)
    if local is not None:
        if revision is not None:
            raise InvalidInputError(
                f"{name!r} is a local model, which has no revision {revision!r}",
                field="model.revision",
            )
        return _open(name, None, local)
    if _REPOSITORY.fullmatch(name):
        return None
    hint = did_you_mean(name, bundled_models())
    raise InvalidInputError(
        f"there is no model {name!r}",
        field="model.name",
        remedy=f"{hint} "
        * bool(hint)
        + f"use a bundled model ({', '.join(bundled_models())}), an existing directory, "
        "or a Hugging Face repository as owner/name",
    )


def check_offline(name: str, revision: str | None) -> None:
    """Refuse a repository that is not cached while downloads are switched off."""
    from huggingface_hub import constants  # noqa: PLC0415 - only repositories need it

    if not constants.HF_HUB_OFFLINE:
        return
    from modnorm.checkpoint.hub import is_cached  # noqa: PLC0415 - loads httpx

    if not is_cached(name, revision):
        raise PreconditionError(
            f"{name} is not on this machine, and HF_HUB_OFFLINE forbids a download",
            field="model.name",
            remedy=f"`hf download {name}` where there is a network, or give a local directory",
        )


def _open(name: str, revision: str | None, directory: Path) -> Checkpoint:
    refuse_adapter(directory)
    config = decoder_config(load_config(directory))
    physical_layout(config)
    weight_files(directory)
    checkpoint = Checkpoint(name, revision, directory, config)
    positive(config, "max_position_embeddings")
    return checkpoint


def _local_directory(name: str, roots: Sequence[Path] | None) -> Path | None:
    if name in bundled_models():
        return _BUNDLED / name
    explicit = name.startswith(("/", ".", "~"))
    directory = existing_path(name)
    if directory is not None and directory.is_dir():
        if roots is None:
            return directory
        if lies_under(directory, roots):
            _refuse_links_out(name, directory, roots)
            return directory
    if not explicit:
        return None
    if roots is not None:
        raise _outside(name)
    raise InvalidInputError(f"there is no directory {name!r}", field="model.name")


def _refuse_links_out(name: str, directory: Path, roots: Sequence[Path]) -> None:
    """Refuse a model with links to files outside of the roots."""
    try:
        files = [*directory.iterdir(), *directory.glob(_NAMED_TEMPLATES)]
        links = [file for file in files if file.is_symlink()]
        astray = [
            str(link.relative_to(directory))
            for link in links
            if not lies_under(link.resolve(), roots)
        ]
    except (OSError, RuntimeError):  # unreadable, or links in a circle
        astray = ["."]
    if astray:
        raise _outside(f"{name}/{astray[0]}")


def _outside(name: str) -> InvalidInputError:
    """Return the error for a path outside of the roots; it hides whether the path exists."""
    return InvalidInputError(
        f"there is no directory {name!r} under this service's model directories",
        field="model.name",
        remedy="put the model under one of the configured model roots",
    )


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


def tokenizer_class(checkpoint: Checkpoint) -> str:
    """Return the name of the class of transformers that loads the model's tokenizer.

    A `tokenizer.json` is used unchanged. For some families (Qwen2) `AutoTokenizer` would replace
    the file's splitting rule by the family's.
    """
    is_whole = vocabulary_file(checkpoint) == "tokenizer.json"
    return "PreTrainedTokenizerFast" if is_whole else "AutoTokenizer"


def check_tokenizer_files(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint without a vocabulary or without a default chat template."""
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
    return InvalidInputError(
        f"{checkpoint.name} has no usable tokenizer: {reason}",
        field="model.name",
        remedy="put the tokenizer's files next to the weights",
    )
