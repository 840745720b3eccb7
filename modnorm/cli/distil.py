"""`modnorm distil`: rounds that train a student on right answers of an ensemble, and results."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from modnorm.cli.console import emit_json, interruptible, note, say
from modnorm.cli.options import (
    Json,
    LabServer,
    Out,
    Quiet,
    Seed,
    SpecFile,
    check_model,
    check_spec,
    opt,
    read_spec,
    seeded,
    settings,
)
from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    from modnorm.analysis.distillation import DistillationDocument
    from modnorm.client.run_directory import RunDirectory
    from modnorm.spec import DistillationSpec, ExperimentSpec

Device = Annotated[
    str | None, opt("--device DEVICE", "Device that trains, such as cuda:1 [default: a GPU].")
]


def distil(
    spec_file: SpecFile,
    *,
    out: Out = None,
    seed: Seed = None,
    server: LabServer = None,
    device: Device = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train one model on an ensemble's right answers, in rounds.

    Each round searches, lets the experts answer training rows, trains a student on right answers
    by TRL, and evaluates it. The same command resumes an interrupted distillation and repeats no
    finished stage. Students are folders of DIR, which a lab of --server must see.
    """
    from modnorm.client.run_directory import hold

    spec = seeded(read_spec(spec_file), seed)
    home = out or Path("runs") / spec_file.stem
    settings_of(spec)  # a search is refused before any other check
    check_spec(spec, spec_file)
    check_model(spec)
    with interruptible("stopped; the same command resumes here"), hold(home):
        from modnorm.analysis.distillation_report import REPORT
        from modnorm.cli.results import print_distillation

        document = run_distillation(spec, home, home, server, device=device, quiet=quiet)
        if as_json:
            emit_json(document)
            return
        print_distillation(document)
        say(f"report: {home / REPORT}")


def settings_of(spec: "ExperimentSpec") -> "DistillationSpec":
    """Return the section `distillation` of a spec."""
    if spec.distillation is None:
        raise InvalidInputError(
            "is missing: this spec is a search",
            field="distillation",
            remedy="add the section (docs/distillation.md), or use `modnorm run`",
        )
    return spec.distillation


def run_distillation(
    spec: "ExperimentSpec",
    directory: Path,
    home: Path,
    server: str | None,
    *,
    device: str | None,
    quiet: bool,
) -> "DistillationDocument":
    """Carry out a distillation, or return the figures of a finished one."""
    from modnorm.analysis.distillation import load_distillation
    from modnorm.cli.progress import counted, loading
    from modnorm.client.run_directory import RunDirectory
    from modnorm.spec_checks import load_splits

    if RunDirectory(directory).has_results_of(spec):
        note(f"{directory} has the results of this spec; another --out runs it again")
        return load_distillation(directory)
    with loading("torch", quiet=quiet):
        from modnorm.distillation.rounds import Distillation, DistillationMeans
    means = DistillationMeans(
        search=partial(_search, home, server, quiet=quiet),
        announce=(lambda _line: None) if quiet else say,
        counted=partial(counted, quiet=quiet),
        device=device,
    )
    splits = load_splits(spec, roots=None, folders=settings().split_folders)
    return Distillation(spec, settings_of(spec), directory, splits, means).run()


def _search(
    home: Path, server: str | None, spec: "ExperimentSpec", place: "RunDirectory", *, quiet: bool
) -> None:
    """Run the search of a round to its end, and write its directory."""
    from modnorm.cli.results import write_results
    from modnorm.cli.run import follow_to_end, lab_for, show_remarks

    place.check(spec)
    with lab_for(home, server, "distil", quiet=quiet) as (client, submit):
        experiment = submit(client, spec)
        place.claim(spec)
        if not quiet:
            show_remarks(client, experiment.id)
        write_results(client, follow_to_end(client, experiment, quiet=quiet), place)
