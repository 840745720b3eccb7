"""The experiments of `modnorm run`, read and checked before a lab is started."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.cli.console import say
from modnorm.cli.options import check_model, check_spec, read_spec, seeded
from modnorm.client.rundir import RunDirectory
from modnorm.errors import InvalidInputError, ModnormError
from modnorm.spec import ExperimentSpec


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One experiment and its directory."""

    file: Path
    spec: ExperimentSpec
    directory: RunDirectory

    @property
    def title(self) -> str:
        """Name in the progress display if the spec has none."""
        return self.file.stem


def plan_runs(spec_files: Sequence[Path], home: Path, seed: int | None) -> list[PlannedRun]:
    """Return each spec with its directory: the home, or one inside it if there are several.

    Raises:
        InvalidInputError: a spec is invalid, or two have the same name.
        ConflictError: the home holds a single run, and would hold several.
    """
    if len(spec_files) == 1:
        spec = seeded(read_spec(spec_files[0]), seed)
        return [PlannedRun(spec_files[0], spec, RunDirectory(home))]
    specs = [seeded(read_spec(path), seed) for path in spec_files]
    stems = [path.stem for path in spec_files]
    if len(set(stems)) < len(stems):
        raise InvalidInputError(
            "two specs have the same file name", field="spec", remedy="rename one of them"
        )
    RunDirectory(home).check_holds_no_run()
    return [
        PlannedRun(path, spec, RunDirectory(home / path.stem))
        for path, spec in zip(spec_files, specs, strict=True)
    ]


def check_runs(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the runs that the checks of this machine refuse, after a line about each.

    Raises:
        ModnormError: all are refused; the error is that of the first.
        ConflictError: a directory holds a run of another spec.
    """
    for planned in runs:
        planned.directory.check(planned.spec)
    faults = {planned: fault for planned in runs if (fault := _fault(planned))}
    if len(faults) == len(runs):
        raise faults[runs[0]]
    for planned, fault in faults.items():
        report_failure(planned, fault)
    return list(faults)


def report_failure(planned: PlannedRun, error: ModnormError) -> None:
    """Print the name of a run that failed, and the reason."""
    say(f"failed: {planned.directory.path.name}: {error}")


def _fault(planned: PlannedRun) -> ModnormError | None:
    try:
        planned.spec.require_search()
        check_spec(planned.spec, planned.file)
        check_model(planned.spec)
    except ModnormError as error:
        return error
    return None
