"""Finished evaluations in a file that the embedded labs of one cache directory share."""

import json
import logging
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from modnorm.files import json_digest
from modnorm.services.common.software import SOFTWARE

RESULT = (
    "attempts",
    "worker",
    "metric",
    "answers_done",
    "correct",
    "valid",
    "truncated",
    "tokens",
    "switch_seconds",
    "generate_seconds",
    "score_seconds",
    "environment",
)
"""Columns that a report sets on its job."""
_LIBRARIES = ("torch", "transformers", "vllm")
_FORMAT = 3
_BUSY_SECONDS = 5.0
_TABLE = """
CREATE TABLE IF NOT EXISTS evaluations (
    content_key TEXT PRIMARY KEY, result TEXT NOT NULL, coefficients BLOB, normaliser REAL,
    sheet BLOB NOT NULL
)
"""
_ADD = "INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?, ?)"
_WHERE = "WHERE content_key IN (SELECT value FROM json_each(?))"

logger = logging.getLogger(__name__)


class Evaluation(NamedTuple):
    """The result of a finished job, without its answers."""

    result: Mapping[str, object]
    """Columns of the job."""
    coefficients: bytes | None
    normaliser: float | None


def _software_digest() -> str:
    """Return the digest of all versions on which answers may depend."""
    versions = dict(SOFTWARE)
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return json_digest([_FORMAT, versions])


class EvaluationCache:
    """Evaluations by content key; used by several threads and processes.

    Each set of versions of the software has a file of its own. A file that cannot be used is
    logged and costs only the reuse.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"evaluations-{_software_digest()[:16]}.db"
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None

    def find(self, keys: Collection[str]) -> Mapping[str, Evaluation]:
        """Return the evaluations of those keys that have one."""
        rows = self._select("result, coefficients, normaliser", keys)
        return {key: Evaluation(json.loads(result), *values) for key, result, *values in rows}

    def sheets(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Return the packed answers of those keys that have an evaluation."""
        return dict(self._select("sheet", keys))

    def add(self, evaluations: Mapping[str, tuple[Evaluation, bytes]]) -> None:
        """Store evaluations with their packed answers; of two with one key, the first."""
        rows = [
            (key, json.dumps(one.result), one.coefficients, one.normaliser, sheet)
            for key, (one, sheet) in evaluations.items()
        ]
        with self._lock, self._logged(), self._open() as connection:
            connection.executemany(_ADD, rows)

    def close(self) -> None:
        with self._lock, suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.close()

    def _select(self, columns: str, keys: Collection[str]) -> list[Any]:
        """Return rows of the key and some columns; none if the file cannot be used."""
        with self._lock, self._logged():
            query = f"SELECT content_key, {columns} FROM evaluations {_WHERE}"  # noqa: S608 - constants
            return self._open().execute(query, [json.dumps(list(keys))]).fetchall()
        return []

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(_TABLE)
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextmanager
    def _logged(self) -> Iterator[None]:
        """Log an error of the file instead of raising it."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            logger.warning("evaluations are not shared: %s: %s", self._path, error)
