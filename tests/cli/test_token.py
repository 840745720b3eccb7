import pytest
import typer

from modnorm.cli.app import build_app
from modnorm.cli.commands import COMMANDS


def test_a_token_is_made_listed_and_revoked(modnorm, modnorm_json, tmp_path):
    file = ("--file", tmp_path / "tokens.yaml")
    assert modnorm_json("token", "create", "ci", *file, "--role", "read")["token"]
    assert modnorm_json("token", "revoke", "ci", *file) == {"name": "ci", "state": "revoked"}
    (listed,) = modnorm_json("token", "list", *file)
    assert listed["state"] == "revoked"
    code, out, err = modnorm("token", "revoke", "ci", *file)
    assert (code, out, err) == (0, "", "revoked: ci\n")


def commands(command, path):
    if not hasattr(command, "commands"):
        yield pytest.param(command, id="-".join(path))
        return
    for name, inner in command.commands.items():
        yield from commands(inner, (*path, name))


def all_commands():
    group = typer.main.get_group(build_app())
    for name in COMMANDS:
        yield from commands(group.get_command(typer.Context(group), name), (name,))


@pytest.mark.parametrize("command", list(all_commands()))
def test_every_command_takes_json(command):
    assert "--json" in {option for each in command.params for option in each.opts}
