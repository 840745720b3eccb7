"""The lock by which one aggregator uses a database as long as its process lives."""

import logging
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from modnorm.errors import ConflictError
from modnorm.locks import locked
from modnorm.services.aggregator.storage.database import START_REMEDY, outages
from modnorm.services.aggregator.storage.dialects import open_engine, parse_url

WAIT_SECONDS = 5.0
"""Longest wait for a predecessor that is just ending."""
_PAUSE_SECONDS = 0.2
_KEY = 0x6D6F646E6F726E
"""Key of Postgres's advisory lock."""

logger = logging.getLogger(__name__)


class SoleProcess:
    """Keeps other aggregators from a database: they would miss each other's changes.

    On Postgres a session of its own holds an advisory lock, which ends with the process. On SQLite
    the file `DATABASE.lock` is locked.
    """

    def __init__(self, url: str) -> None:
        self._url = parse_url(url)
        self._engine = open_engine(self._url, WAIT_SECONDS)
        self._session: Connection | None = None
        self._lock = threading.Lock()
        self._released = False
        self._file = Path(f"{self._url.database}.lock")
        self._held = ExitStack()
        self._is_sqlite = self._url.get_backend_name() == "sqlite"

    def take(self) -> None:
        with self._lock:
            self._take()

    def keep(self) -> None:
        """Take the lock again if its session has ended, for example with a restart of Postgres."""
        with self._lock:
            if self._is_sqlite or self._released:
                return
            try:
                if self._session is not None:
                    self._session.execute(text("SELECT 1"))
                    return
            except DBAPIError:
                logger.warning("the session of the aggregator's lock has ended")
                self._end_session()
            self._take()

    def release(self) -> None:
        """Let another aggregator use the database; `keep` does not take it again."""
        with self._lock:
            self._released = True
            self._end_session()
            self._engine.dispose()
            self._held.close()

    def _take(self) -> None:
        began = time.monotonic()

        def poll() -> None:
            if time.monotonic() > began + WAIT_SECONDS:
                self._engine.dispose()
                raise ConflictError(
                    "another aggregator uses this database",
                    field="MODNORM_DATABASE_URL",
                    remedy="stop it first: a database has one aggregator",
                )

        if self._is_sqlite:
            self._held.enter_context(locked(self._file, poll))
            return
        with outages(self._url, None, START_REMEDY):
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            try:
                while not session.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _KEY}):
                    poll()
                    time.sleep(_PAUSE_SECONDS)
            except BaseException:
                _end(session)
                raise
        self._session = session

    def _end_session(self) -> None:
        if self._session is not None:
            _end(self._session)
            self._session = None


def _end(session: Connection) -> None:
    session.invalidate()  # a pool would keep it open
    session.close()
