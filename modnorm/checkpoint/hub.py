"""Download of the necessary files of a checkpoint from the Hugging Face Hub."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from httpx import HTTPError
from huggingface_hub import (
    get_hf_file_metadata,
    hf_hub_url,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm
from typing_extensions import override

from modnorm.checkpoint.checkpoint_files import (
    ADAPTER,
    INDEX,
    METADATA,
    SINGLE,
    load_config,
    refuse_adapter,
    shard_names,
)
from modnorm.checkpoint.families import physical_layout
from modnorm.errors import InvalidInputError, UnavailableError

_PROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""Files that an exported multimodal model needs to process images."""
_PROBE_SECONDS = 10.0
"""A Hub that does not answer for so long counts as out of reach."""


def fetch_checkpoint(
    name: str, revision: str | None, on_bytes: Callable[[], object] | None = None
) -> Path:
    """Return the local snapshot of a repository; the directory's name is the commit.

    `on_bytes` is called, in any thread, as often as bytes arrive; its errors end the download.

    It fetches configuration and index first. So an unsupported model costs no download, and the
    index names the shards.
    """
    first = _snapshot(name, revision, (*METADATA, *_PROCESSORS, ADAPTER, INDEX))
    refuse_adapter(first)
    physical_layout(load_config(first))
    shards = shard_names(first) if (first / INDEX).is_file() else ()
    return _snapshot(name, first.name, (*METADATA, INDEX, SINGLE, *shards), on_bytes)


def check_repository(name: str, revision: str | None) -> None:
    """Make sure that a repository is in the cache, or that the Hub has it."""
    if is_cached(name, revision):
        return
    with _hub_errors(name, revision):
        url = hf_hub_url(name, "config.json", revision=revision)
        get_hf_file_metadata(url, timeout=_PROBE_SECONDS)


def is_cached(name: str, revision: str | None) -> bool:
    """Return whether a repository's configuration is in the cache."""
    with _hub_errors(name, revision):
        found = try_to_load_from_cache(name, "config.json", revision=revision)
    return isinstance(found, str)


def _snapshot(
    name: str,
    revision: str | None,
    patterns: tuple[str, ...],
    on_bytes: Callable[[], object] | None = None,
) -> Path:
    class Progress(tqdm):
        @override
        def update(self, n: float | None = 1) -> None:
            if on_bytes is not None:
                on_bytes()
            super().update(n)

    with _hub_errors(name, revision):
        return Path(
            snapshot_download(
                name, revision=revision, allow_patterns=list(patterns), tqdm_class=Progress
            )
        )


@contextmanager
def _hub_errors(name: str, revision: str | None) -> Iterator[None]:
    try:
        yield
    except RevisionNotFoundError as error:
        raise InvalidInputError(
            f"{name} has no revision {revision!r}", field="model.revision"
        ) from error
    except (RepositoryNotFoundError, GatedRepoError, HFValidationError) as error:
        raise InvalidInputError(
            f"the Hugging Face Hub refuses {name}: {error}",
            field="model.name",
            remedy="check the name; for a gated model, log in with `hf auth login`",
        ) from error
    except RemoteEntryNotFoundError as error:
        raise InvalidInputError(
            f"{name} has no config.json",
            field="model.name",
            remedy="name a repository with safetensors weights, not of GGUF files or an adapter",
        ) from error
    except (LocalEntryNotFoundError, HTTPError, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise UnavailableError(
            f"cannot fetch {name} from the Hugging Face Hub: {first_line}",
            field="model.name",
            remedy="try again, or use a local directory",
        ) from error
