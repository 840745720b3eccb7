"""What the database says about one experiment, read past all proxies."""

from contextlib import suppress
from dataclasses import dataclass

import psycopg

from verification.labs.servers import Database

ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


@dataclass(frozen=True)
class Sight:
    """Where an experiment is."""

    experiment: str = ""
    """Its id; empty as long as there is none."""
    state: str = ""
    done: int = 0
    """Jobs that are done, of all phases."""
    holders: tuple[str, ...] = ()
    """Workers that hold a lease."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state in ENDED


class Observer:
    """Reads over a connection of its own, opened again when it breaks; for one thread.

    Args:
        database: Where to read.
        request: Request id of the experiment.
    """

    def __init__(self, database: Database, request: str) -> None:
        self._database = database
        self._request = request
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._latest = Sight()

    def look(self) -> Sight:
        """Tell where the experiment is; what was seen last while the database is down."""
        with suppress(psycopg.Error):
            self._latest = self._read()
            return self._latest
        self.close()
        return self._latest

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a query; none while the database is down."""
        with suppress(psycopg.Error):
            return self._ask(query, *values)
        self.close()
        return []

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self) -> Sight:
        found = self._ask("SELECT id, state FROM experiments WHERE request_id = %s", self._request)
        if not found:
            return Sight()
        experiment, state = (str(value) for value in found[0])
        jobs = self._ask("SELECT state, worker FROM jobs WHERE experiment_id = %s", experiment)
        done = sum(state == "done" for state, _ in jobs)
        holders = tuple(str(worker) for state, worker in jobs if state == "leased")
        return Sight(experiment, state, done, holders)

    def _ask(self, query: str, *values: object) -> list[tuple[object, ...]]:
        if self._connection is None:
            self._connection = self._database.connect()
        # Queries are literals of this package.
        return self._connection.execute(query.encode(), values).fetchall()
