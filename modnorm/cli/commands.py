"""The commands by name, in the groups of the help; each is imported when a user names it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pkgutil import resolve_name
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command
from typing_extensions import override


class Command(NamedTuple):
    """The place of a command, and its line in the help of all commands."""

    place: str
    """`module:function`, or `module:COMMANDS`, a mapping of functions by subcommand."""
    line: str
    """First sentence of its own help."""
    heading: str


_BY_HEADING: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Run experiments": {
        "init": ("specs:init", "Write a commented spec that runs as it is."),
        "validate": ("specs:validate", "Check specs without running them."),
        "plan": ("specs:plan", "Estimate jobs, tokens and hours of a spec."),
        "run": ("run:run", "Run experiments in this process and write results and a report."),
        "distil": (
            "distil:distil",
            "Train one model on the right answers of an ensemble, in rounds.",
        ),
        "suite": (
            "suite:COMMANDS",
            "Run many experiments declared in one file, and print their tables.",
        ),
        "tasks": ("specs:tasks", "List the tasks."),
        "methods": ("specs:methods", "List the methods."),
    },
    "Read results": {
        "show": ("lab:show", "Show a run directory or an experiment of a lab."),
        "candidates": (
            "reading:candidates",
            "Print the candidates of a finished run, best first.",
        ),
        "answers": (
            "reading:answers",
            "Print the answers of a finished run, with their judgement.",
        ),
        "votes": (
            "reading:votes",
            "Print the votes of a finished run: counts, ties and every expert's vote.",
        ),
        "compare": (
            "comparing:compare",
            "Show finished runs side by side, with the differences that prevent a comparison.",
        ),
        "view": (
            "serving:view",
            "Serve a web page of run directories: figures, candidates, answers, votes.",
        ),
        "analyze": (
            "comparing:analyze",
            (
                "Write tables and figures of finished runs: scaling, tails, support, agreement, "
                "costs."
            ),
        ),
        "rescore": (
            "predict:rescore",
            "Judge the stored completions of a finished run by another scorer, without a model.",
        ),
        "track": (
            "comparing:track",
            "Log finished runs to an experiment tracker: specs, held-out figures, files.",
        ),
        "predict": ("predict:predict", "Answer new questions by the vote of an ensemble."),
        "serve": ("serving:serve", "Serve an ensemble to OpenAI clients."),
        "export": (
            "export:export",
            (
                "Write a candidate, or the model that es, mezo or zo_finetuner trained, as a "
                "checkpoint."
            ),
        ),
        "rebuild": ("export:rebuild", "Write and verify the checkpoints of an exported ensemble."),
    },
    "Choose a radius, measure a model": {
        "tune": (
            "radius:tune",
            (
                "Choose the radius (sigma for randopt) with the best mean ensemble on "
                "development rows."
            ),
        ),
        "match": (
            "radius:match",
            "Choose the radius that changes the model as much as isotropic noise does.",
        ),
        "scales": ("models:scales", "Print masses and scales of every physical tensor."),
        "calibrate": (
            "models:calibrate",
            "Calibrate a model's sensitivities and write the profile.",
        ),
        "prepare": (
            "models:prepare",
            (
                "Prepare the generator of zo_finetuner on solved puzzles, with gradients, once "
                "per model."
            ),
        ),
    },
    "Use a lab": {
        "submit": (
            "lab:submit",
            "Submit an experiment to a lab and print its id; with --wait, follow it.",
        ),
        "watch": ("lab:watch", "Follow an experiment to its end."),
        "list": ("lab:list_experiments", "List the experiments of a lab, newest first."),
        "cancel": ("lab:cancel", "Ask an experiment to stop."),
        "token": ("lab:TOKEN_COMMANDS", "Create, list and revoke the tokens that a lab accepts."),
    },
    "Data and this machine": {
        "data": ("data:COMMANDS", "List, fetch and check the rows of the paper's benchmarks."),
        "cast": ("models:cast", "Write a model with its weights in another dtype."),
        "doctor": ("lab:doctor", "Check this machine, and a lab if one is named."),
        "version": ("app:version", "Print the version."),
    },
}
"""Place in `modnorm.cli` and help line of each command, by heading, in the order of the help."""

COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        name: Command(f"modnorm.cli.{place}", line, heading)
        for heading, commands in _BY_HEADING.items()
        for name, (place, line) in commands.items()
    }
)
"""All commands, in the order of the help."""


class _Writer(Protocol):
    """What writes the help of a command."""

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


class HelpedCommand(TyperCommand):
    """A command whose help has no types of Python: arguments are named by their metavar."""

    @override
    def collect_usage_pieces(self, ctx: object) -> list[str]:
        return ["[OPTIONS]", *(name for name, _ in self._records(ctx, TyperArgument))]

    @override
    def format_options(self, ctx: object, formatter: _Writer) -> None:
        for heading, kind in (("Arguments", TyperArgument), ("Options", TyperOption)):
            if records := list(self._records(ctx, kind)):
                with formatter.section(heading):
                    formatter.write_dl(records)

    def _records(
        self, ctx: object, kind: type[TyperArgument | TyperOption]
    ) -> Iterator[tuple[str, str]]:
        context = cast("typer.Context", ctx)
        for parameter in self.get_params(context):
            if isinstance(parameter, kind) and (record := parameter.get_help_record(context)):
                name, text = record
                if isinstance(parameter, TyperArgument):
                    name, text = str(parameter.metavar), text.removesuffix("  [required]")
                yield name, text


def _load(name: str) -> TyperCommand | TyperGroup:
    """Import a command, or a group of commands."""
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
        app.command(inner, cls=HelpedCommand)(function)
    return cast("TyperCommand | TyperGroup", get_command(app))
