"""`modnorm rescore`: a finished run by another scorer, from its stored completions."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.options import Json, Quiet, Run, RunServer

Scorer = Annotated[
    str | None, typer.Option("--scorer", metavar="NAME", help="Scorer [default: the task's own].")
]
SandboxTarget = Annotated[
    str | None,
    typer.Option(
        "--sandbox", metavar="HOST:PORT", help="Sandbox service [default: one of this process]."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="File [default: RUN/rescored-SCORER.json; none for a lab]."
    ),
]


def rescore(
    run: Run,
    *,
    scorer: Scorer = None,
    server: RunServer = None,
    sandbox: SandboxTarget = None,
    out: Out = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Judge the stored completions of a finished run by another scorer, without a model.

    Shows the held-out metrics by both scorers for the experts of the run. Shows them too for the
    experts that the new scorer selects, if all of them answered the held-out rows.
    """
    from modnorm.cli.rescore_work import rescore_and_show

    rescore_and_show(
        run,
        scorer=scorer,
        server=server,
        sandbox=sandbox,
        out=out,
        quiet=quiet,
        as_json=as_json,
    )
