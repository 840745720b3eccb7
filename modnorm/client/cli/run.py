"""`modnorm run`: experiments from spec to report, with a lab inside this process."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from modnorm.client.cli.console import emit_json, stderr, stdout
from modnorm.client.cli.experiment import carry_out, interruptible
from modnorm.client.cli.options import Json, Quiet, read_spec, settings
from modnorm.client.cli.results import read_results, results_table, write_results
from modnorm.client.cli.seed import Seed, seeded
from modnorm.client.client import ModnormClient
from modnorm.client.embedded import embedded_client
from modnorm.client.rundir import RunDirectory, hold
from modnorm.errors import InvalidInputError
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
    after another, and get a directory each inside DIR.
    """
    home = out or Path("runs") / spec_files[0].stem
    runs = _plan(spec_files, home, seed)
    with interruptible("stopped; the same command goes on from here"), hold(home):
        for planned in runs:
            planned.directory.check(planned.spec)
        with embedded_client(home, settings()) as client:
            for planned in runs:
                _carry_out(client, planned, quiet=quiet, as_json=as_json)
    if as_json:
        documents = [read_results(planned.directory) for planned in runs]
        emit_json(documents[0] if len(documents) == 1 else documents)


def _plan(spec_files: Sequence[Path], home: Path, seed: int | None) -> list[_Run]:
    specs = [seeded(read_spec(path), seed) for path in spec_files]
    if len(specs) == 1:
        return [_Run(specs[0], RunDirectory(home))]
    stems = [path.stem for path in spec_files]
    if len(set(stems)) < len(stems):
        raise InvalidInputError(
            "two specs have the same file name", field="spec", remedy="rename one of them"
        )
    RunDirectory(home).check_holds_no_run()
    return [_Run(spec, RunDirectory(home / stem)) for spec, stem in zip(specs, stems, strict=True)]


def _carry_out(client: ModnormClient, planned: _Run, *, quiet: bool, as_json: bool) -> None:
    experiment = carry_out(
        client,
        planned.spec,
        quiet=quiet,
        on_accepted=lambda: planned.directory.claim(planned.spec),
    )
    report = write_results(client, experiment, planned.directory)
    if not as_json:
        stdout().print(results_table(read_results(planned.directory)))
    stderr().print(f"report: {report}", soft_wrap=True)
