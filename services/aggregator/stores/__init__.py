"""The database, by aggregate. Every public method of a store is one transaction."""

from dataclasses import dataclass

from services.aggregator.stores.events import EventStore
from services.aggregator.stores.experiments import ExperimentStore
from services.aggregator.stores.jobs import JobStore
from services.aggregator.stores.results import ResultStore

__all__ = ["EventStore", "ExperimentStore", "JobStore", "ResultStore", "Stores"]


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores of one database."""

    experiments: ExperimentStore
    jobs: JobStore
    results: ResultStore
    events: EventStore
