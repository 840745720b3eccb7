"""Runs in MLflow: its server, or a local store, as MLFLOW_TRACKING_URI says."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TypeVar

from mlflow.entities import Metric, Param
from mlflow.environment_variables import MLFLOW_EXPERIMENT_NAME
from mlflow.tracking import MlflowClient

from modnorm.tracking.tracker import Point, RunStatus, TrackedRun

_Item = TypeVar("_Item")

_EXPERIMENT = "modnorm"
_TAG = "modnorm.experiment"
_LONGEST = 6_000
"""Characters of a parameter that MLflow accepts."""
_BATCH = 100
"""Parameters that MLflow accepts in one call; the limit of metrics is larger."""
_STATUS = {
    RunStatus.SUCCEEDED: "FINISHED",
    RunStatus.FAILED: "FAILED",
    RunStatus.STOPPED: "KILLED",
}


class MlflowTracker:
    """A run of MLflow; see `modnorm.tracking.tracker.Tracker`."""

    def __init__(self) -> None:
        self._client = MlflowClient()
        self._run = ""

    @staticmethod
    def check() -> None:
        """Accept: MLflow needs no login."""

    def start(self, run: TrackedRun) -> None:
        """Start the run, or continue the one whose tag names the experiment."""
        experiment = self._experiment()
        found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{run.id}'")
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return
        created = self._client.create_run(experiment, tags={_TAG: run.id}, run_name=run.name)
        self._run = created.info.run_id
        parameters = [Param(key, str(value)[:_LONGEST]) for key, value in run.parameters.items()]
        for batch in _batches(parameters):
            self._client.log_batch(self._run, params=batch)

    def log(self, point: Point) -> None:
        """Log figures at the step and the time of the point."""
        at = int(1000 * point.seconds)
        named = {f"{point.phase}/{name}": value for name, value in point.values.items()}
        metrics = [Metric(name, value, at, point.step) for name, value in named.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def summarize(self, values: Mapping[str, float]) -> None:
        """Log each figure once."""
        at = int(1000 * time.time())
        metrics = [Metric(name, value, at, 0) for name, value in values.items()]
        for batch in _batches(metrics):
            self._client.log_batch(self._run, metrics=batch)

    def attach(self, files: Mapping[str, Path]) -> None:
        """Store the files as artifacts."""
        for name, path in files.items():
            folder = str(PurePosixPath(name).parent)
            self._client.log_artifact(self._run, str(path), None if folder == "." else folder)

    def end(self, outcome: RunStatus) -> None:
        """Set the status of the run."""
        self._client.set_terminated(self._run, _STATUS[outcome])

    def _experiment(self) -> str:
        """Return the id of MLflow's experiment, a group of runs; made where absent."""
        name = MLFLOW_EXPERIMENT_NAME.get() or _EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return self._client.create_experiment(name)
        identity: str = found.experiment_id
        return identity


def _batches(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield batch
