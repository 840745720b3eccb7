"""The state of an embedded lab's experiments, read from its database while it works."""

from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL
from sqlmodel import col, select

from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.tables import Experiment
from modnorm.services.aggregator.web.lab_catalog import status_of
from modnorm.web.sources import Status

DATABASE, RUNS = "modnorm.db", "runs"
"""Names of the database and of the finished runs in the directory of an embedded lab."""


def read_unfinished(state: Path, spec_digest: str) -> Status | None:
    """Return the state of the newest experiment of a spec in a lab's directory, if there is one.

    Raises:
        ModnormError: the database cannot be read, or is of another version.
    """
    path = (state / DATABASE).resolve()
    if not path.is_file():
        return None
    options = {"mode": "ro", "uri": "true"}
    url = URL.create("sqlite", database=f"file:{quote(str(path))}", query=options)
    newest = (
        select(Experiment)
        .where(Experiment.spec_digest == spec_digest)
        .order_by(col(Experiment.create_time).desc())
    )
    with closing(Database(url.render_as_string())) as database:
        database.check_schema()
        with database.read() as session:
            experiment = session.exec(newest).first()
        if experiment is None:
            return None
        status = status_of(database, experiment)
        return Status("writing the results") if status.finished else status
