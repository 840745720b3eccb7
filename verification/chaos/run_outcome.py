"""The outcome of an experiment, without times, ids and names of workers."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modnorm.client.client import Client
from verification.labs.servers import Database

if TYPE_CHECKING:
    import psycopg

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
    "ensembles": """
        SELECT population, ensemble_size, experts, metric, correct, rows
        FROM ensembles WHERE experiment_id = %s ORDER BY population, ensemble_size""",
    "votes": """
        SELECT population, ensemble_size, row, answer, correct, valid, support, correct_support
        FROM votes WHERE experiment_id = %s ORDER BY population, ensemble_size, row""",
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
_INVARIANTS_OF_PREDICTIONS = (
    "a job is not done",
    "a lease is left",
    "events are not numbered without a gap",
    "attempts are not between one and the number of leases",
)

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run, which must be equal in all runs of an experiment."""

    document: str
    tables: Mapping[str, Rows]

    def differences(self, other: "RunOutcome") -> Iterator[str]:
        """Yield the differences of another outcome."""
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
    """Read the outcome of a succeeded experiment from database and client."""
    with Client(server) as client:
        document = client.run(experiment).document
    with database.connect() as connection:
        tables = {name: _rows(connection, query, experiment) for name, query in _TABLES.items()}
    return RunOutcome(json.dumps(document, sort_keys=True), tables)


def broken_invariants(database: Database, experiment: str) -> Iterator[str]:
    """Yield the violated invariants of an ended experiment."""
    with database.connect() as connection:
        yield from _broken(connection, experiment, _INVARIANTS)


def broken_prediction(database: Database, prediction: str) -> Iterator[str]:
    """Yield the violated invariants of an ended prediction."""
    with database.connect() as connection:
        yield from _broken(connection, prediction, _INVARIANTS_OF_PREDICTIONS)


def _broken(
    connection: "psycopg.Connection[tuple[object, ...]]", experiment: str, names: Iterable[str]
) -> Iterator[str]:
    for name in names:
        for row in _rows(connection, _INVARIANTS[name], experiment):
            yield f"{name}: {row}"


def _rows(
    connection: "psycopg.Connection[tuple[object, ...]]", query: str, experiment: str
) -> Rows:
    return connection.execute(query.encode(), [experiment]).fetchall()
