"""Cache of prompt encoders by the files that they are made of."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from modnorm.checkpoint.checkpoint_files import metadata_digest
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.services.common.bounded_dict import BoundedDict

KEPT = 4
"""Most encoders in memory; the vocabulary decides how much one takes."""


class _Entry:
    """An encoder, and the lock of the thread that uses it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.encoder: PromptEncoder | None = None


class EncoderCache:
    """The prompt encoders of one service, safe to share between threads.

    The tokenizers library never frees some kilobytes of each tokenizer that has encoded a text, so
    a service must not load one for each call. Models with equal files besides their weights, as
    the students of a base, share an encoder.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._entries: BoundedDict[str, _Entry] = BoundedDict(KEPT)

    @contextmanager
    def lend(self, checkpoint: Checkpoint) -> Iterator[PromptEncoder]:
        """Yield the encoder of a checkpoint; other threads wait for it meanwhile."""
        digest = metadata_digest(checkpoint.directory)
        with self._lock:
            entry = self._entries[digest] = self._entries.get(digest) or _Entry()
        with entry.lock:
            yield entry.encoder or self._load(checkpoint, digest, entry)

    def _load(self, checkpoint: Checkpoint, digest: str, entry: _Entry) -> PromptEncoder:
        """Load an encoder; keep it unless the files were replaced meanwhile."""
        encoder = PromptEncoder(checkpoint)
        if metadata_digest(checkpoint.directory) == digest:
            entry.encoder = encoder
        return encoder
