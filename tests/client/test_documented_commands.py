"""Every `modnorm` command in the documentation, parsed by the command line itself."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import typer.core

from modnorm.cli.app import build_app

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
INDENTED = re.compile(r"^ {4,}(?:\$ )?(modnorm .*)$", re.MULTILINE)
# The click that typer raises from may be its own copy.
USAGE_ERROR = typer.BadParameter.__mro__[1]


def commands(page):
    # A backslash at the end of a line joins it to the next, as in a shell.
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    return [
        pytest.param(found, id=f"{page.name}: {found[:60]}") for found in INDENTED.findall(text)
    ]


def parse(words):
    """Let the command that is named take its arguments, and do nothing with them."""
    command, context = typer.main.get_command(build_app()), None
    while isinstance(command, typer.core.TyperGroup):
        with command.make_context("modnorm", words, parent=context) as context:
            _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
    command.make_context("modnorm", words, parent=context).close()


@pytest.mark.parametrize("command", [one for page in PAGES for one in commands(page)])
def test_a_documented_command_has_all_that_it_needs_and_nothing_unknown(command):
    words = shlex.split(command, comments=True)[1:]
    parse(words[: words.index(">")] if ">" in words else words)  # the shell takes the rest


@pytest.mark.parametrize(
    "words", [["tune", "spec.yaml"], ["match"], ["run", "spec.yaml", "--fast"], ["suite", "go"]]
)
def test_what_the_command_line_refuses_is_noticed(words):
    with pytest.raises(USAGE_ERROR):
        parse(words)
