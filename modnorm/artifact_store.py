"""JSON artifacts on disk, found by the digest of their content or of their inputs.

    ROOT/<sha-256 of the content>.json
    ROOT/keys/<sha-256 of the inputs>       contains the digest of the artifact
    ROOT/locks/<sha-256 of the inputs>      locked by the process that computes it

A temporary file is written, synced and renamed, so that readers never see an incomplete file. A
file whose content does not match its name counts as absent and is computed again.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from modnorm.errors import UnavailableError
from modnorm.files import is_digest, replaced_file
from modnorm.locks import locked

logger = logging.getLogger(__name__)


class ArtifactStore:
    """The artifacts of one kind, safe to share between threads and processes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, digest: str) -> str | None:
        """Return an artifact by its digest or a unique prefix of it."""
        if is_digest(digest):
            return self._read(digest)
        digests = [path.stem for path in self._root.glob(f"{digest}*.json")]
        return self._read(digests[0]) if len(digests) == 1 else None

    def find(self, key: str) -> str | None:
        try:
            digest = (self._root / "keys" / key).read_text("utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return self._read(digest) if is_digest(digest) else None

    def put(self, key: str, text: str) -> str:
        """Store an artifact under its digest and a key; return the digest."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._outages():
            _write(self._root / f"{digest}.json", text)
            _write(self._root / "keys" / key, digest)
        return digest

    def find_or_make(
        self, key: str, make: Callable[[], str], check: Callable[[], None] = lambda: None
    ) -> str:
        """Return the artifact of a key; of all processes, one makes it if it is absent.

        `check` is called repeatedly during the wait for another process; its errors end the wait.
        """
        path = self._root / "locks" / key
        with ExitStack() as stack:
            with self._outages():
                path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(path, check))
            check()
            found = self.find(key)
            if found is None:
                self.put(key, found := make())
            return found

    @contextmanager
    def _outages(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(
                f"cannot write below {self._root}: {error.strerror}",
                field="cache_dir",
                remedy="free disk space, allow writing there, or set MODNORM_CACHE_DIR",
            ) from error

    def _read(self, digest: str) -> str | None:
        path = self._root / f"{digest}.json"
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if hashlib.sha256(content).hexdigest() != digest:
            logger.warning("damaged artifact", extra={"path": str(path)})
            return None
        return content.decode()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced_file(path, draft=path.with_name(f".{uuid4().hex}")) as file:
        file.write(text.encode())
