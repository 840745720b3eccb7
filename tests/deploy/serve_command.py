"""The options of `modnorm serve`, as its command line reads them."""

from collections.abc import Mapping, Sequence

from typer.main import get_command

from modnorm.cli.app import build_app
from modnorm.cli.commands import CommandGroup


def parsed(words: Sequence[str]) -> Mapping[str, object]:
    """Return the parameters of `modnorm serve WORDS`; an unknown option is an error."""
    commands = get_command(build_app())
    assert isinstance(commands, CommandGroup)
    serve = commands.get_command(None, "serve")
    assert serve is not None
    parameters: Mapping[str, object] = serve.make_context("serve", list(words)).params
    return parameters
