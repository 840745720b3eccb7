"""The jobs of a run directory, read from its database while a lab works on it."""

import sqlite3


def jobs(directory):
    """Return the rows of all jobs by id; empty before the database is there."""
    database = directory / "state" / "modnorm.db"
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            columns = "id, state, attempts, token, worker, generate_seconds"
            rows = connection.execute(f"select {columns} from jobs").fetchall()
        connection.close()
    except sqlite3.OperationalError:
        return {}
    return {row[0]: row[1:] for row in rows}


def done(directory):
    return {name: row for name, row in jobs(directory).items() if row[0] == "done"}
