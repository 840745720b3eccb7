"""Events of experiments, read from a cursor on."""

from collections.abc import Sequence

from sqlmodel import col, select

from modnorm.errors import InvalidInputError
from services.aggregator.database import Database
from services.aggregator.lifecycle import unknown_experiment
from services.aggregator.states import TERMINAL
from services.aggregator.tables import Event, Experiment


class EventStore:
    """The events of all experiments; they are written by whatever changes an experiment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def after(self, experiment_id: str, cursor: int, limit: int) -> tuple[Sequence[Event], bool]:
        """Return the next events, and whether the experiment has ended with the last of them.

        Args:
            experiment_id: The experiment.
            cursor: Events after this one; 0 for all.
            limit: Most events to return.

        Raises:
            NotFoundError: there is no such experiment.
            InvalidInputError: the experiment never had this cursor.
        """
        with self._database.read() as session:
            experiment = session.get(Experiment, experiment_id)
            if experiment is None:
                raise unknown_experiment(experiment_id)
            if not 0 <= cursor <= experiment.last_cursor:
                raise InvalidInputError(
                    f"the cursor must be between 0 and {experiment.last_cursor}", field="cursor"
                )
            events = session.exec(
                select(Event)
                .where(Event.experiment_id == experiment_id, col(Event.cursor) > cursor)
                .order_by(col(Event.cursor))
                .limit(limit)
            ).all()
            last = events[-1].cursor if events else cursor
            return events, experiment.state in TERMINAL and last >= experiment.last_cursor
