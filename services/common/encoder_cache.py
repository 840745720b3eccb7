"""A cache of the prompt encoders of a service."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from modnorm.checkpoint.checkpoint_files import metadata_digest
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.services.common.bounded_dict import BoundedDict

KEPT = 4
"""Most encoders in memory; the vocabulary decides how much one takes."""


@dataclass(slots=True)
class _Entry:
    """An encoder, and the lock of the thread that uses it."""

    lock: Lock = field(default_factory=Lock)
    encoder: PromptEncoder | None = None


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
            encoder = entry.encoder or PromptEncoder(checkpoint)
            # The files may have been replaced while they were loaded.
            if entry.encoder or metadata_digest(checkpoint.directory) == digest:
                entry.encoder = encoder
            yield encoder
