"""Commands that talk to a running lab."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.options import (
    ExperimentId,
    Json,
    Quiet,
    Seed,
    Server,
    SpecFile,
    read_spec,
    seeded,
)
from modnorm.errors import InvalidInputError, UnreachableError


def submit(
    spec_file: SpecFile,
    *,
    server: Server = None,
    request_id: Annotated[
        str | None, typer.Option(help="Name of the submission; the same id finds it again.")
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Start a new experiment even if one of this spec runs."),
    ] = False,
    seed: Seed = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the experiment to its end.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Submit an experiment to a lab and print its id; with --wait, follow it.

    If an experiment of the same spec is running in the lab, prints the id of that one, unless
    --again or --request-id is used.
    """
    if again and request_id is not None:
        raise InvalidInputError(
            "a request id names one experiment, and --again starts a new one",
            field="again",
            remedy="use one of the two",
        )
    spec = seeded(read_spec(spec_file), seed)
    from modnorm.cli.lab_work import submit_spec

    submit_spec(
        spec,
        server,
        request_id=request_id,
        again=again,
        title=spec_file.stem,
        wait=wait,
        quiet=quiet,
        as_json=as_json,
    )


def watch(
    experiment_id: ExperimentId,
    *,
    server: Server = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Follow an experiment to its end. With --json: one event a line."""
    from modnorm.cli.lab_work import watch_experiment

    watch_experiment(_id(experiment_id), server, quiet=quiet, as_json=as_json)


def show(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Directory of runs, or id of an experiment.")
    ],
    *,
    server: Server = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Directory for results and report.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a run directory or an experiment of a lab.

    Each line is a model or a vote, its metric on the held-out rows and the 95 % Wilson interval
    over these rows. `rank 1 by selection` is the candidate with the highest selection reward.
    `N=12 K=5` is the vote of the best 5 of the first 12 candidates.

    With --out, write the files of a lab's experiment that `run` writes.
    """
    if server is None and out is None and Path(run).is_dir():
        from modnorm.cli.results import show_directory

        show_directory(Path(run), as_json=as_json)
        return
    from modnorm.cli.lab_work import show_stored

    try:
        show_stored(_id(run), server, out, as_json=as_json)
    except UnreachableError as error:
        if server is not None:
            raise
        raise UnreachableError(
            f"there is no directory {run}; as for an experiment, {error.message}",
            field="run",
            remedy=error.remedy,
        ) from error


def list_experiments(*, server: Server = None, as_json: Json = False) -> None:
    """List the experiments of a lab, newest first."""
    from modnorm.cli.lab_work import list_all

    list_all(server, as_json=as_json)


def cancel(experiment_id: ExperimentId, *, server: Server = None, as_json: Json = False) -> None:
    """Ask an experiment to stop."""
    from modnorm.cli.lab_work import stop_experiment

    stop_experiment(_id(experiment_id), server, as_json=as_json)


def _id(text: str) -> str:
    """Return the id of an experiment; a path is a mistake."""
    path = Path(text)
    if "/" in text or path.exists():
        there = "does not exist"
        if path.exists():
            there = "is a directory" if path.is_dir() else "is a file"
        raise InvalidInputError(
            f"{text} {there}",
            field="id",
            remedy="name an id that `modnorm list` shows, or for `modnorm show` a run directory",
        )
    return text
