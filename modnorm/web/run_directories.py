"""Run directories as sources of the pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from modnorm.analysis.comparison import ComparisonRow, compare_runs
from modnorm.analysis.distillation import is_distillation, load_distillation
from modnorm.analysis.run import load_run, stored_spec
from modnorm.analysis.run_files import RESULTS, not_a_run, runs_inside
from modnorm.errors import InvalidInputError
from modnorm.web.queries import on_page
from modnorm.web.sources import FINISHED, Headline, Status, ViewedRun, unknown_run

ReadStatus = Callable[[Path], Status]
"""Returns the state of a run directory that has no results yet."""
_UNKNOWN = {
    **{key: {"name": "-", "size": "-"} for key in ("model", "task", "method", "population")},
    "name": "",
}
"""A spec that cannot be read."""


def unknown_progress(_path: Path) -> Status:
    """Return the state of a directory whose progress is not known."""
    return Status("not finished")


def view_directory(path: Path, name: str, read_status: ReadStatus) -> ViewedRun:
    """Return the run in a directory, which may be damaged."""
    read = partial(load_run, path)
    try:
        spec = stored_spec(path).model_dump(mode="json")
        results = load_run(path) if (path / RESULTS).is_file() else None
        distillation = load_distillation(path) if is_distillation(path) else None
    except InvalidInputError as error:
        return ViewedRun(name, _UNKNOWN, Status("damaged", live=False, error=str(error)), read)
    if distillation is not None:
        done = Status("finished", live=False)
        return ViewedRun(name, spec, done, read, distillation=distillation)
    if results is None:
        return ViewedRun(name, spec, read_status(path), read)
    base = results.document["base"]
    last = next(reversed(results.document["ensembles"]), None)
    headline = Headline(
        base=base["heldout_metric"],
        base_interval=base["heldout_interval"],
        vote=last and last["metric"],
        interval=last and last["interval"],
    )
    return ViewedRun(name, spec, FINISHED, lambda: results, headline)


class DirectoryCatalog:
    """The runs in some directories; implements `modnorm.web.sources.Catalog`."""

    def __init__(self, paths: Sequence[Path], read_status: ReadStatus = unknown_progress) -> None:
        self._read_status = read_status
        self._paths = [path.resolve() for path in paths]
        for path in self._paths:
            if not runs_inside(path):
                raise not_a_run(path)

    def runs(self, page: int) -> tuple[Sequence[ViewedRun], bool]:
        """Return one page of the present runs, in the order of the paths."""
        shown, more = on_page(self._paths_by_name().items(), page)
        return [view_directory(path, name, self._read_status) for name, path in shown], more

    def run(self, name: str) -> ViewedRun:
        found = self._paths_by_name()
        if name not in found:
            raise unknown_run(name)
        return view_directory(found[name], name, self._read_status)

    def compare(self, names: Sequence[str]) -> Sequence[ComparisonRow]:
        """Set finished runs side by side, under their names in addresses."""
        return compare_runs([replace(self.run(name).results, name=name) for name in names])

    def _paths_by_name(self) -> Mapping[str, Path]:
        found = dict.fromkeys(run for path in self._paths for run in runs_inside(path))
        names, paths = [path.name for path in found], {}
        for number, path in enumerate(found, 1):
            name, is_taken = path.name, names.count(path.name) > 1
            while is_taken:
                name = f"{number}-{name}"
                is_taken = name in names
            paths[name] = path
        return paths
