"""Runs in Weights & Biases: its server, or local files with WANDB_MODE=offline."""

from collections.abc import Mapping
from pathlib import Path

import wandb

from modnorm.errors import PreconditionError
from modnorm.tracking.tracker import Point, RunStatus, TrackedRun

_PROJECT = "modnorm"
_DONE = "done"
_LOCAL_MODES = frozenset({"offline", "disabled"})


class WandbTracker:
    """A run of Weights & Biases; see `modnorm.tracking.tracker.Tracker`."""

    def __init__(self) -> None:
        self._run: wandb.Run | None = None
        self._phases: set[str] = set()

    @staticmethod
    def check() -> None:
        """Make sure that nothing has to be asked at the terminal.

        Raises:
            PreconditionError: runs go to a server, and there are no credentials.
        """
        is_local = wandb.setup().settings.mode in _LOCAL_MODES
        if not is_local and not wandb.login(prompt=False, verify=False):
            raise PreconditionError(
                "wandb has no credentials",
                field="track",
                remedy="`wandb login`, or set WANDB_MODE=offline",
            )

    def start(self, run: TrackedRun) -> None:
        """Start the run, or continue the one of this id."""
        self._run = wandb.init(
            project=wandb.setup().settings.project or _PROJECT,
            id=run.id,
            name=run.name,
            resume="allow",
            config=dict(run.parameters),
            # The output of this process and the load of this machine are not the run's.
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
        )

    def log(self, point: Point) -> None:
        """Log figures over the finished items of the phase."""
        if point.phase not in self._phases:
            self._phases.add(point.phase)
            self._started.define_metric(f"{point.phase}/*", step_metric=f"{point.phase}/{_DONE}")
        self._started.log({f"{point.phase}/{name}": n for name, n in point.values.items()})

    def summarize(self, values: Mapping[str, float]) -> None:
        """Set the figures of the run's summary."""
        self._started.summary.update(dict(values))

    def attach(self, files: Mapping[str, Path]) -> None:
        """Store the files as one artifact."""
        artifact = wandb.Artifact(f"run-{self._started.id}", type="run")
        for name, path in files.items():
            artifact.add_file(str(path), name=name)
        self._started.log_artifact(artifact)

    def end(self, outcome: RunStatus) -> None:
        """End the run; an exit code other than 0 marks it as failed."""
        self._started.finish(exit_code=0 if outcome == RunStatus.SUCCEEDED else 1)

    @property
    def _started(self) -> wandb.Run:
        if self._run is None:
            raise RuntimeError("the run was not started")
        return self._run
