"""The options of `modnorm serve`, as its command line reads them."""

from collections.abc import Mapping, Sequence

import typer

from modnorm.cli.serving import serve


def parsed(words: Sequence[str]) -> Mapping[str, object]:
    """Return the parameters of `modnorm serve WORDS`; an unknown option is an error."""
    app = typer.Typer()
    app.command()(serve)
    parameters: Mapping[str, object] = (
        typer.main.get_command(app).make_context("serve", list(words)).params
    )
    return parameters
