"""Run directories as sources of the pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from modnorm.analysis.comparison import ComparisonRow, compare_runs
from modnorm.analysis.distillation import DistillationDocument, is_distillation, load_distillation
from modnorm.analysis.run import Run, load_run, stored_spec
from modnorm.analysis.run_files import RESULTS, not_a_run, runs_inside
from modnorm.errors import InvalidInputError
from modnorm.spec import ExperimentSpec
from modnorm.web.queries import PAGE_LINES
from modnorm.web.sources import Headline, RunPage, Unfinished, ViewedRun, unknown_run

ReadUnfinished = Callable[[Path], Unfinished]
"""Returns the state of a run directory that has no results yet."""
_SECTIONS = ("model", "task", "method", "population")
_UNKNOWN = {"name": "-", "size": "-"}
"""A section of a spec that cannot be read."""


def unknown_progress(_path: Path) -> Unfinished:
    """Return the state of a directory that does not tell its progress."""
    return Unfinished("not finished")


class DirectoryRun(ViewedRun):
    """A run directory."""

    def __init__(
        self, path: Path, name: str, read_unfinished: ReadUnfinished = unknown_progress
    ) -> None:
        self.path, self.name = path, name
        self._read_unfinished = read_unfinished

    @cached_property
    def results(self) -> Run:
        """The results of a finished search."""
        return load_run(self.path)

    @cached_property
    def _damage(self) -> str:
        """Why spec or results cannot be read, and the remedy; empty if they can."""
        try:
            _ = self._spec
            if (self.path / RESULTS).is_file():
                _ = self.results
        except InvalidInputError as error:
            return str(error)
        return ""

    @cached_property
    def unfinished(self) -> Unfinished | None:
        """Its state; None if it has results of a search."""
        if self._damage:
            return Unfinished("damaged", live=False, error=self._damage)
        if is_distillation(self.path):
            return Unfinished("finished", live=False)
        return None if (self.path / RESULTS).is_file() else self._read_unfinished(self.path)

    @cached_property
    def spec(self) -> Mapping[str, object]:
        """The spec as JSON values with all defaults; dashes if the run is damaged."""
        if self._damage:
            return {**dict.fromkeys(_SECTIONS, _UNKNOWN), "name": ""}
        return self._spec.model_dump(mode="json")

    @cached_property
    def _spec(self) -> ExperimentSpec:
        return stored_spec(self.path)

    @cached_property
    def distillation(self) -> DistillationDocument | None:
        """The document of a finished distillation; None for a search."""
        return load_distillation(self.path) if is_distillation(self.path) else None

    @cached_property
    def headline(self) -> Headline | None:
        """Its figures in the list; None unless it has finished."""
        if not self.finished:
            return None
        document = self.results.document
        last = document["ensembles"][-1] if document["ensembles"] else None
        base = document["base"]
        return Headline(
            base=base["heldout_metric"],
            base_interval=base["heldout_interval"],
            vote=last and last["metric"],
            interval=last and last["interval"],
        )


class DirectoryCatalog:
    """The runs in some directories; implements `modnorm.web.sources.Catalog`."""

    def __init__(
        self, paths: Sequence[Path], read_unfinished: ReadUnfinished = unknown_progress
    ) -> None:
        self._read_unfinished = read_unfinished
        self._paths = [path.resolve() for path in paths]
        for path in self._paths:
            if not runs_inside(path):
                raise not_a_run(path)

    def runs(self, page: int) -> RunPage:
        """Return one page of the present runs, in the order of the paths."""
        runs, start = self._runs(), (page - 1) * PAGE_LINES
        return RunPage(runs[start : start + PAGE_LINES], page, len(runs) > start + PAGE_LINES)

    def run(self, name: str) -> DirectoryRun:
        """Return a run."""
        for run in self._runs():
            if run.name == name:
                return run
        raise unknown_run(name)

    def compare(self, names: Sequence[str]) -> Sequence[ComparisonRow]:
        """Set finished runs side by side, under their names in addresses."""
        return compare_runs([replace(self.run(name).results, name=name) for name in names])

    def _runs(self) -> Sequence[DirectoryRun]:
        found = dict.fromkeys(run for path in self._paths for run in runs_inside(path))
        names = [path.name for path in found]
        return [
            DirectoryRun(
                path,
                path.name if names.count(path.name) == 1 else f"{number}-{path.name}",
                self._read_unfinished,
            )
            for number, path in enumerate(found, 1)
        ]
