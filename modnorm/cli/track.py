"""`modnorm track`: a finished run in MLflow or Weights & Biases."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.console import emit_json, say
from modnorm.cli.options import Json

Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Directories of finished runs.")
]
To = Annotated[str, typer.Option("--to", metavar="TRACKER", help="mlflow or wandb.")]


def track(directories: Directories, *, to: To, as_json: Json = False) -> None:
    """Log finished runs to an experiment tracker: specs, held-out figures, files.

    A run that is logged again continues its run in the tracker.
    """
    from modnorm.tracking import log_run

    for directory in directories:
        log_run(directory, to)
        say(f"logged {directory} to {to}")
    if as_json:
        emit_json({"tracker": to, "directories": [str(each) for each in directories]})
