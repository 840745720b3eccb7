"""The examples of the README, run as they stand, and every documented command, parsed."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import typer.core
import yaml

from modnorm.cli.app import build_app
from modnorm.spec import load_spec, parse_spec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto

ROOT = Path(__file__).parents[2]
SUCCEEDED = experiments.EXPERIMENT_STATE_SUCCEEDED


@pytest.fixture
def example():
    (found,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return found


@pytest.fixture
def lab(serve_directory, gsm8k_experiment, gsm8k_stored):
    """The address of a lab in which every experiment is over; and the specs that it got."""
    specs = []

    def create(request, context):
        specs.append(spec_from_proto(request.spec))
        return experiments.CreateExperimentResponse(experiment=gsm8k_experiment)

    def watch(request, context):
        yield experiments.WatchExperimentResponse(cursor=1, state=SUCCEEDED, message="the end")

    address = serve_directory(
        gsm8k_experiment, gsm8k_stored, CreateExperiment=create, WatchExperiment=watch
    )
    return address, specs


def test_the_spec_of_the_readme_is_one_that_its_commands_can_use():
    text = (ROOT / "README.md").read_text()
    (found,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    spec = parse_spec(yaml.safe_load(found))
    assert "modnorm rescore runs/mine" in text
    assert spec.method.radius is not None


def test_the_example_of_the_readme_runs(example, lab, monkeypatch, capsys):
    address, specs = lab
    monkeypatch.chdir(ROOT)
    exec(example.replace("aggregator.example:50051", address), {})
    assert specs == [load_spec("examples/demo-modular-norm.yaml")]
    out = capsys.readouterr().out
    assert "the end 0" in out
    assert "population" in out


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
