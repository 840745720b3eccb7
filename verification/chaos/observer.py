"""Observation of one experiment in the database, without proxies."""

from contextlib import suppress
from dataclasses import dataclass

import psycopg

from verification.labs.servers import Database

BY_REQUEST = "SELECT id, state FROM experiments WHERE request_id = %s"
"""Finds an experiment by its request id."""
BY_QUESTIONS = "SELECT id, state FROM experiments WHERE heldout_digest = %s"
"""Finds a prediction by the digest of its questions."""
_JOBS = "SELECT state, worker FROM jobs WHERE experiment_id = %s"
_DOWN = (psycopg.OperationalError, psycopg.InterfaceError)
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


@dataclass(frozen=True)
class Observation:
    """The state of an experiment."""

    experiment: str = ""
    """Its id; empty before it is stored."""
    state: str = ""
    done: int = 0
    """Number of finished jobs of all phases."""
    holders: tuple[str, ...] = ()
    """Names of the workers that hold a lease."""

    @property
    def ended(self) -> bool:
        """Whether the experiment has ended."""
        return self.state in ENDED


class Observer:
    """Reads over a separate connection, reopened after a failure; for one thread.

    Args:
        database: Postgres.
        name: The value that identifies the experiment.
        query: The query by this value.
    """

    def __init__(self, database: Database, name: str, query: str = BY_REQUEST) -> None:
        self._database = database
        self._name = name
        self._query = query
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._latest = Observation()

    def observe(self) -> Observation:
        """Return the state of the experiment; while the database is down, the last one read."""
        with suppress(*_DOWN):
            self._latest = self._read()
            return self._latest
        self.close()
        return self._latest

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a query; empty while the database is down."""
        with suppress(*_DOWN):
            return self._ask(query, *values)
        self.close()
        return []

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self) -> Observation:
        rows = self._ask(self._query, self._name)
        if not rows:
            return Observation()
        experiment, state = (str(value) for value in rows[0])
        jobs = self._ask(_JOBS, experiment)
        done = sum(state == "done" for state, _ in jobs)
        holders = tuple(str(worker) for state, worker in jobs if state == "leased")
        return Observation(experiment, state, done, holders)

    def _ask(self, query: str, *values: object) -> list[tuple[object, ...]]:
        if self._connection is None:
            self._connection = self._database.connect()
        # Queries are literals of this package.
        return self._connection.execute(query.encode(), values).fetchall()
