"""Experiments as the database shows them: while they run, and their outcome at the end."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from modnorm.client.client import Client
from verification.labs.servers import Database

_EXPERIMENT = "SELECT id, state FROM experiments WHERE request_id = %s"
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
        return self.state in ENDED


class Observer:
    """Reads one experiment over a connection without proxies, reopened after a failure."""

    def __init__(self, database: Database, request: str) -> None:
        self._database = database
        self._request = request
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._latest = Observation()

    def observe(self) -> Observation:
        """Return the state of the experiment; while the database is down, the last one read."""
        with suppress(*_DOWN):
            found = Observation()
            for experiment, state in self._ask(_EXPERIMENT, self._request):
                jobs = self._ask(_JOBS, experiment)
                done = sum(of_job == "done" for of_job, _ in jobs)
                holders = tuple(str(worker) for of_job, worker in jobs if of_job == "leased")
                found = Observation(str(experiment), str(state), done, holders)
            self._latest = found
            return found
        self.close()
        return self._latest

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a query; empty while the database is down."""
        with suppress(*_DOWN):
            return self._ask(query, *values)
        self.close()
        return []

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, query: str, *values: object) -> list[tuple[object, ...]]:
        if self._connection is None:
            self._connection = self._database.connect()
        # Queries are literals of this package.
        return self._connection.execute(query.encode(), values).fetchall()


_TABLES: Mapping[str, str] = {
    "experiment": """
        SELECT state, error, model_digest, scorer, max_tokens, profile_digest, scale_map_digest,
               selection_digest, heldout_digest, jobs_total, jobs_done, jobs_failed
        FROM experiments WHERE id = %s""",
    "candidates": """
        SELECT index, noise, seed, method, radius, scale_map_digest, coefficients
        FROM candidates WHERE experiment_id = %s ORDER BY index""",
    "jobs": """
        SELECT split, candidate, state, error, metric, tokens, answers_done, environment
        FROM jobs WHERE experiment_id = %s ORDER BY split, candidate""",
    "answers": """
        SELECT j.split, j.candidate, a.content FROM answers a JOIN jobs j ON j.id = a.job_id
        WHERE j.experiment_id = %s ORDER BY j.split, j.candidate""",
    "votes": """
        SELECT population, ensemble_size, row, answer, correct, valid, support, correct_support
        FROM votes WHERE experiment_id = %s ORDER BY population, ensemble_size, row""",
    "ensembles": """
        SELECT population, ensemble_size, experts, metric, correct, rows
        FROM ensembles WHERE experiment_id = %s ORDER BY population, ensemble_size""",
}
_INVARIANTS: Mapping[str, str] = {
    "a job is not done": """
        SELECT id, state FROM jobs WHERE experiment_id = %s AND state <> 'done'""",
    "a lease is left": """
        SELECT id, worker, token FROM jobs
        WHERE experiment_id = %s AND (state = 'leased' OR lease_deadline IS NOT NULL)""",
    "attempts are not between one and the number of leases": """
        SELECT id, attempts, token FROM jobs
        WHERE experiment_id = %s AND (attempts < 1 OR attempts > token)""",
    "counters are not what was counted": """
        SELECT e.jobs_done, e.jobs_total, count(j.id) FROM experiments e
        LEFT JOIN jobs j ON j.experiment_id = e.id AND j.split = 'heldout' AND j.state = 'done'
        WHERE e.id = %s GROUP BY e.id
        HAVING e.jobs_done <> count(j.id) OR e.jobs_total <> count(j.id)""",
    "a candidate was counted twice": """
        SELECT message, count(*) FROM events WHERE experiment_id = %s
        AND message ~ '^(base|candidate [0-9]+), [a-z]+: -?[0-9.]+$'
        GROUP BY message HAVING count(*) > 1""",
    "events are not numbered without a gap": """
        SELECT e.last_cursor, count(v.cursor) FROM experiments e
        LEFT JOIN events v ON v.experiment_id = e.id
        WHERE e.id = %s GROUP BY e.id
        HAVING e.last_cursor <> count(v.cursor) OR e.last_cursor <> max(v.cursor)""",
}

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run, which must be equal in all runs of an experiment."""

    document: str
    tables: Mapping[str, Rows]

    def differences(self, other: "RunOutcome") -> Iterator[str]:
        if self.document != other.document:
            yield "results.json differs"
        for name, rows in self.tables.items():
            others = other.tables[name]
            if len(rows) != len(others):
                yield f"{name}: {len(others)} rows instead of {len(rows)}"
            for expected, row in zip(rows, others, strict=False):
                if expected != row:
                    yield f"{name}: {row} instead of {expected}"


def read_outcome(database: Database, server: str, experiment: str) -> RunOutcome:
    with Client(server) as client:
        document = client.run(experiment).document
    with database.connect() as connection:
        tables = {name: _rows(connection, query, experiment) for name, query in _TABLES.items()}
    return RunOutcome(json.dumps(document, sort_keys=True), tables)


def broken_invariants(database: Database, experiment: str) -> Iterator[str]:
    """Yield the violated invariants of an ended experiment."""
    with database.connect() as connection:
        for name, query in _INVARIANTS.items():
            for row in _rows(connection, query, experiment):
                yield f"{name}: {row}"


def _rows(connection: psycopg.Connection[tuple[object, ...]], query: str, experiment: str) -> Rows:
    return connection.execute(query.encode(), [experiment]).fetchall()
