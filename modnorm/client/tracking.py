"""Logs an experiment to a tracker: its spec, its progress, its results and its files."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from typing_extensions import override

from modnorm.client.client import Client
from modnorm.client.rundir import lock_file, state_directory
from modnorm.client.watch import TERMINAL_STATES
from modnorm.errors import CancelledError, ModnormError
from modnorm.spec import ExperimentSpec
from modnorm.tracking.background import BackgroundTracker
from modnorm.tracking.registry import StartTracker
from modnorm.tracking.tracker import Point, RunStatus, TrackedRun
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name, stored_spec_from_proto
from modnorm.wire.run_messages import extent

if TYPE_CHECKING:
    from modnorm.analysis.distillation import DistillationDocument
    from modnorm.analysis.document import ResultsDocument

Event = experiments.WatchExperimentResponse
Warn = Callable[[str], None]

_POINT_SECONDS = 1.0
"""Least time between two points of one phase; the last point of a phase is always logged."""


class Tracking:
    """Logs nothing. A context: leaving it ends the tracker's run."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def begin(self, experiment: experiments.Experiment, title: str) -> None:
        """Log the spec of an experiment."""

    def show(self, event: Event, base: float | None) -> None:
        """Log the progress after an event; `base` is the reward of the base, once known."""

    def finish(self, values: Mapping[str, float], directory: Path) -> None:
        """Log the figures of a finished run, and the files of its directory."""

    def finish_from_lab(self, client: Client, experiment: experiments.Experiment) -> None:
        """Fetch the files of a finished experiment and log them with its results."""


def open_tracking(start: StartTracker | None, warn: Warn) -> Tracking:
    """Return the tracking of one experiment; without a tracker it logs nothing."""
    return Tracking() if start is None else RunTracking(start, warn)


class RunTracking(Tracking):
    """Logs one experiment with a tracker; no failure of it reaches the caller.

    Args:
        start: Makes the tracker.
        warn: Called with one line about a failure.
        clock: Seconds, which space the points.
    """

    def __init__(
        self, start: StartTracker, warn: Warn, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._tracker = BackgroundTracker(start, warn)
        self._warn = warn
        self._held: Point | None = None
        self._phase = ""
        self._logged = 0.0
        self._outcome = RunStatus.SUCCEEDED

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._flush()
        if error is not None:
            is_stop = isinstance(error, CancelledError) or not isinstance(error, Exception)
            self._outcome = RunStatus.STOPPED if is_stop else RunStatus.FAILED
        self._tracker.end(self._outcome)

    @override
    def begin(self, experiment: experiments.Experiment, title: str) -> None:
        """Start the tracker's run with the parameters of the spec."""
        spec = stored_spec_from_proto(experiment.spec)
        self._tracker.start(TrackedRun(experiment.id, spec.name or title, parameters(spec)))

    @override
    def show(self, event: Event, base: float | None) -> None:
        """Log a point at the begin and end of a phase, and one a second between them."""
        point = _point(event, base)
        if point is None:
            return
        now = self._clock()
        if point.phase != self._phase:
            self._flush()
        elif now - self._logged < _POINT_SECONDS:
            self._held = point
            return
        self._phase, self._logged, self._held = point.phase, now, None
        self._tracker.log(point)

    @override
    def finish(self, values: Mapping[str, float], directory: Path) -> None:
        """Log figures, and every file of the run directory."""
        self._flush()
        self._tracker.summarize(values)
        self._tracker.attach(run_files(directory))

    @override
    def finish_from_lab(self, client: Client, experiment: experiments.Experiment) -> None:
        """Write the run directory to a temporary place and log it."""
        with tempfile.TemporaryDirectory(prefix="modnorm-") as folder:
            try:
                values = _saved_figures(client, experiment, Path(folder))
            except (ModnormError, OSError) as error:
                self._warn(f"the tracker lacks the results: {error}")
                return
            self.finish(values, Path(folder))

    def _flush(self) -> None:
        if self._held is not None:
            self._tracker.log(self._held)
            self._held = None


def parameters(spec: ExperimentSpec) -> dict[str, str | int | float | bool]:
    """Return the fields of a spec by dotted path; lists as text, without fields that are unset."""
    return dict(_leaves(spec.model_dump(mode="json"), ""))


def figures(document: "ResultsDocument") -> dict[str, float]:
    """Return the held-out figures of a run by name, each with the bounds of its interval."""
    base, experts = document["base"], document["experts"]
    found: list[tuple[str, object, object]] = [
        ("base", base["heldout_metric"], base["heldout_interval"])
    ]
    if experts:
        found.append(("rank_1", experts[0]["heldout_metric"], experts[0]["heldout_interval"]))
    found += [
        (f"N{each['population']}_K{each['ensemble_size']}", each["metric"], each["interval"])
        for each in document["ensembles"]
    ]
    iterative = document["iterative"]
    found += [
        (f"after_{state['updates']}", state["heldout_metric"], state["heldout_interval"])
        for state in (iterative["states"] if iterative else ())
    ]
    return _bounded((f"heldout/{name}", metric, interval) for name, metric, interval in found)


def distillation_figures(document: "DistillationDocument") -> dict[str, float]:
    """Return the figures of a distillation by name, each with the bounds of its interval."""
    rounds, best = document["rounds"], document["best_round"]
    named = [("heldout/base", rounds[0]["heldout"])]
    named += [("heldout/student", each["heldout"]) for each in rounds if each["round"] == best]
    for each in rounds[1:]:
        number, search = f"round_{each['round']}", each["search"]
        if search:
            named.append((f"heldout/{number}_rank_1", search["best_expert"]))
            named.append((f"heldout/{number}_vote", search["vote"]))
        named.append((f"heldout/{number}_student", each["heldout"]))
        named.append((f"development/{number}_student", each["development"]))
    return _bounded((name, figure["metric"], figure["interval"]) for name, figure in named)


def _saved_figures(
    client: Client, experiment: experiments.Experiment, directory: Path
) -> Mapping[str, float]:
    """Write the directory of a finished experiment and return its figures."""
    # Both load matplotlib.
    if experiment.spec.HasField("distillation"):
        from modnorm.client.distillation import save_distillation  # noqa: PLC0415

        return distillation_figures(save_distillation(client, experiment, directory))
    from modnorm.client.export import save_run  # noqa: PLC0415

    return figures(save_run(client, experiment, directory))


def run_files(directory: Path) -> dict[str, Path]:
    """Return the files of a run directory by their relative path, without those of `state/`."""
    state, lock = state_directory(directory), lock_file(directory)
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {
        path.relative_to(directory).as_posix(): path
        for path in files
        if path != lock and state not in path.parents
    }


def _point(event: Event, base: float | None) -> Point | None:
    """Return the figures of a phase that counts something; None of others and of the end."""
    done, total = extent(event)
    if not total or event.state in TERMINAL_STATES:
        return None
    progress = event.progress
    values = {"total": float(total)}
    if progress.HasField("best_reward"):
        values["best_reward"] = progress.best_reward
    if progress.HasField("threshold_reward"):
        values["threshold_reward"] = progress.threshold_reward
    if base is not None:
        values["base_reward"] = base
    return Point(
        phase=state_name(event.state),
        step=done,
        seconds=event.time.ToMicroseconds() / 1e6,
        values={"done": float(done), **values},
    )


def _bounded(named: Iterable[tuple[str, object, object]]) -> dict[str, float]:
    """Return known figures and the bounds of their intervals, by name."""
    values: dict[str, float] = {}
    for name, value, interval in named:
        if isinstance(value, float):
            values[name] = value
        if isinstance(interval, list | tuple):
            values[f"{name}_lower"], values[f"{name}_upper"] = interval
    return values


def _leaves(value: object, path: str) -> Iterator[tuple[str, str | int | float | bool]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, str | int | float | bool):
        yield path, value
    elif isinstance(value, list):
        yield path, ", ".join(map(str, value))
