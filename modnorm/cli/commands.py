"""The commands by name, in the groups of the help; each is imported when a user names it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from inspect import Parameter, signature
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Annotated, NamedTuple, Protocol, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typing_extensions import override

from modnorm.cli.console import output
from modnorm.cli.options import opt


class Command(NamedTuple):
    """The place of a command, and its line in the help of all commands."""

    place: str
    """`module:function`, or `module:COMMANDS`, a mapping of functions by subcommand."""
    line: str
    """First sentence of its own help."""


_BY_HEADING: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run experiments": {
        "init": ("specs:init", "Write a commented spec that runs as it is."),
        "validate": ("specs:validate", "Check specs without running them."),
        "plan": ("specs:plan", "Estimate jobs, tokens and hours of a spec."),
        "run": ("run:run", "Run an experiment in this process and write results and a report."),
        "distil": ("run:distil", "Train one model on an ensemble's right answers, in rounds."),
        "suite": ("suite:COMMANDS", "Run the experiments of one file, and print tables."),
        "tasks": ("specs:tasks", "List the tasks."),
        "methods": ("specs:methods", "List the methods."),
    },
    "Read results": {
        "show": ("lab:show", "Show a run directory or an experiment of a lab."),
        "candidates": ("reading:candidates", "Print the candidates of a run, best first."),
        "answers": ("reading:answers", "Print the answers of a run, with their judgement."),
        "votes": ("reading:votes", "Print the votes of a run: counts, ties, experts."),
        "compare": ("comparing:compare", "Show finished runs side by side, with paired tests."),
        "view": ("serving:view", "Serve a web page of run directories."),
        "analyze": ("comparing:analyze", "Write tables and figures of finished runs."),
        "rescore": ("predict:rescore", "Judge the completions of a run by another scorer."),
        "track": ("comparing:track", "Log finished runs to an experiment tracker."),
        "predict": ("predict:predict", "Answer new questions by the vote of an ensemble."),
        "serve": ("serving:serve", "Serve an ensemble to OpenAI clients."),
        "export": ("export:export", "Write a candidate or a trained model as a checkpoint."),
        "rebuild": ("export:rebuild", "Write and verify the checkpoints of an exported ensemble."),
    },
    "Choose a radius, measure a model": {
        "tune": ("radius:tune", "Choose the radius with the best ensemble on development rows."),
        "match": ("radius:match", "Choose the radius that acts as strongly as isotropic noise."),
        "scales": ("models:scales", "Print masses and scales of every physical tensor."),
        "calibrate": ("models:calibrate", "Calibrate sensitivities and write the profile."),
        "prepare": ("models:prepare", "Prepare the generator of zo_finetuner on solved puzzles."),
    },
    "Use a lab": {
        "submit": ("lab:submit", "Submit an experiment to a lab and print its id."),
        "watch": ("lab:watch", "Follow an experiment to its end."),
        "list": ("lab:list_experiments", "List the experiments of a lab, newest first."),
        "cancel": ("lab:cancel", "Ask an experiment to stop."),
        "token": ("lab:TOKEN_COMMANDS", "Create, list and revoke the tokens that a lab accepts."),
    },
    "Data and this machine": {
        "data": ("data:COMMANDS", "List, fetch and check the rows of the paper's benchmarks."),
        "cast": ("models:cast", "Write a model with its weights in another dtype."),
        "doctor": ("lab:doctor", "Check this machine, and a lab if one is named."),
    },
}
"""Place in `modnorm.cli` and help line of each command, by heading, in the order of the help."""

COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        name: Command(f"modnorm.cli.{place}", line)
        for commands in _BY_HEADING.values()
        for name, (place, line) in commands.items()
    }
)
"""All commands, in the order of the help."""

_JSON = Annotated[bool, opt("--json", "Write JSON to stdout.")]
_QUIET = Annotated[bool, opt("--quiet -q", "Show no progress.")]
_SHOW_PROGRESS = frozenset((
    "calibrate", "distil", "match", "predict", "prepare", "rescore", "run", "submit", "tune",
    "watch",
))  # fmt: skip
"""Commands with the option `--quiet`."""


class _Writer(Protocol):
    def section(self, name: str) -> AbstractContextManager[None]: ...

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None: ...


class CommandGroup(TyperGroup):
    """The group of all commands: imports a command on demand, lists commands by heading."""

    @override
    def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | TyperGroup | None:
        return _load(cmd_name) if cmd_name in self.commands else None

    @override
    def format_commands(self, ctx: object, formatter: _Writer) -> None:
        for heading, commands in _BY_HEADING.items():
            with formatter.section(heading):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


def _load(name: str) -> TyperCommand | TyperGroup:
    found = COMMANDS[name]
    loaded: Callable[..., None] | Mapping[str, Callable[..., None]] = resolve_name(found.place)
    is_group = isinstance(loaded, Mapping)
    app = typer.Typer(
        name=name,
        help=found.line if is_group else None,
        no_args_is_help=is_group,
        rich_markup_mode=None,
        add_completion=False,
    )
    for inner, function in loaded.items() if isinstance(loaded, Mapping) else [(name, loaded)]:
        app.command(inner)(_with_output(function, shows_progress=inner in _SHOW_PROGRESS))
    return cast("TyperCommand | TyperGroup", get_command(app))


def _with_output(function: Callable[..., None], *, shows_progress: bool) -> Callable[..., None]:
    """Return a command that also takes the options of `modnorm.cli.console.output`."""

    @wraps(function)
    def command(*, as_json: bool, quiet: bool = False, **arguments: object) -> None:
        output.as_json, output.quiet = as_json, quiet
        function(**arguments)

    options = {"quiet": _QUIET, "as_json": _JSON} if shows_progress else {"as_json": _JSON}
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in options.items()
    ]
    own = signature(function)
    command.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*own.parameters.values(), *added]
    )
    return command
