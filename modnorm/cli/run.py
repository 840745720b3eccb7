"""`modnorm run`: experiments from spec to report, with a lab inside this process."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.console import emit_json, stderr, stdout
from modnorm.cli.experiment import carry_out, interruptible
from modnorm.cli.options import Json, Quiet, read_spec, settings
from modnorm.cli.results import read_results, results_table, write_results
from modnorm.cli.seed import Seed, seeded
from modnorm.client.client import ModnormClient
from modnorm.client.embedded import embedded_client
from modnorm.client.rundir import RunDirectory, hold
from modnorm.errors import EvaluationError, InvalidInputError, ModnormError, UnavailableError
from modnorm.spec import ExperimentSpec

SpecFiles = Annotated[
    list[Path], typer.Argument(metavar="SPEC...", help="Experiment specs, YAML.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory [default: runs/SPEC].")
]


@dataclass(frozen=True)
class _Run:
    spec: ExperimentSpec
    directory: RunDirectory
    title: str
    """What progress calls it where the spec has no name."""


def run(
    spec_files: SpecFiles,
    *,
    out: Out = None,
    seed: Seed = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run experiments in this process and write results and a report.

    Started again, the same command goes on where it was broken off, or where it failed for a cause
    that is mended by now, and repeats nothing that was finished. Several specs share one lab, one
    after another, and get a directory each inside DIR. All are read before any runs; one that
    fails stops no other, and then the exit code is 1.
    """
    home = out or Path("runs") / spec_files[0].stem
    runs = _plan(spec_files, home, seed)
    with interruptible("stopped; the same command goes on from here"), hold(home):
        for planned in runs:
            planned.directory.check(planned.spec)
        with embedded_client(home, settings()) as client:
            failed = _carry_out_all(client, runs, quiet=quiet, as_json=as_json)
    if as_json:
        documents = [read_results(each.directory) for each in runs if each not in failed]
        emit_json(documents[0] if len(runs) == 1 else documents)
    if failed:
        names = ", ".join(str(planned.directory.path.name) for planned in failed)
        raise EvaluationError(
            f"{len(failed)} of {len(runs)} experiments failed: {names}",
            remedy="mend what is said above; the same command repeats nothing that is finished",
        )


def _plan(spec_files: Sequence[Path], home: Path, seed: int | None) -> list[_Run]:
    if len(spec_files) == 1:
        spec = seeded(read_spec(spec_files[0]), seed)
        return [_Run(spec, RunDirectory(home), spec_files[0].stem)]
    specs = [_read_one_of_several(path, seed) for path in spec_files]
    stems = [path.stem for path in spec_files]
    if len(set(stems)) < len(stems):
        raise InvalidInputError(
            "two specs have the same file name", field="spec", remedy="rename one of them"
        )
    RunDirectory(home).check_holds_no_run()
    return [
        _Run(spec, RunDirectory(home / stem), stem)
        for spec, stem in zip(specs, stems, strict=True)
    ]


def _read_one_of_several(path: Path, seed: int | None) -> ExperimentSpec:
    try:
        return seeded(read_spec(path), seed)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{path}: {error.message}", field=error.field, remedy=error.remedy
        ) from error


def _carry_out_all(
    client: ModnormClient, runs: Sequence[_Run], *, quiet: bool, as_json: bool
) -> list[_Run]:
    """Carry out one after another; return those that failed, of several."""
    if len(runs) == 1:
        _carry_out(client, runs[0], quiet=quiet, as_json=as_json)
        return []
    failed = []
    for planned in runs:
        try:
            _carry_out(client, planned, quiet=quiet, as_json=as_json)
        except ModnormError as error:
            if isinstance(error, UnavailableError):
                next(client.list(), None)  # raises where the lab itself is down
            failed.append(planned)
            name = planned.directory.path.name
            stderr().print(f"failed: {name}: {error}", soft_wrap=True)
    return failed


def _carry_out(client: ModnormClient, planned: _Run, *, quiet: bool, as_json: bool) -> None:
    experiment = carry_out(
        client,
        planned.spec,
        quiet=quiet,
        title=planned.title,
        on_accepted=lambda: planned.directory.claim(planned.spec),
    )
    report = write_results(client, experiment, planned.directory)
    if not as_json:
        stdout().print(results_table(read_results(planned.directory)))
    stderr().print(f"report: {report}", soft_wrap=True)
