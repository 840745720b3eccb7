"""`modnorm view`: the web page of run directories."""

from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.options import Json

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Run directories, or directories that contain some."),
]
Port = Annotated[
    int,
    typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port; 0 chooses a free one."),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen at.")]


def view(runs: Runs, *, port: Port = 0, host: Host = "127.0.0.1", as_json: Json = False) -> None:
    """Serve a web page of run directories: figures, candidates, answers, votes.

    The page reads and never writes. It asks for no token: at an address other than loopback,
    everybody who reaches the port reads the runs. Ctrl-C ends it.
    """
    from modnorm.cli.view_work import serve_directories

    serve_directories(runs, host, port, as_json=as_json)
