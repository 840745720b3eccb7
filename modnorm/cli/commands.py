"""The commands by name, in the groups of the help; each is imported when a user names it."""

from collections.abc import Mapping
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group
from typing_extensions import override

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

START, RESULTS, RADIUS, LAB, MACHINE = (
    "Run experiments",
    "Read results",
    "Choose a radius, measure a model",
    "Use a lab",
    "Data and this machine",
)
"""Headings of the help, in its order."""


class Command(NamedTuple):
    """The place of a command, and its line in the help of all commands."""

    place: str
    """`module:function`; `module:app` of a group of commands."""
    line: str
    """First sentence of its own help."""
    heading: str


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "init": Command(
            "modnorm.cli.init:init", "Write a commented spec that runs as it is.", START
        ),
        "validate": Command(
            "modnorm.cli.validate:validate", "Check specs without running them.", START
        ),
        "plan": Command(
            "modnorm.cli.estimate:plan", "Estimate jobs, tokens and hours of a spec.", START
        ),
        "run": Command(
            "modnorm.cli.run:run",
            "Run experiments in this process and write results and a report.",
            START,
        ),
        "suite": Command(
            "modnorm.cli.suite:app",
            "Run many experiments declared in one file, and print their tables.",
            START,
        ),
        "tasks": Command("modnorm.cli.registries:tasks", "List the tasks.", START),
        "methods": Command("modnorm.cli.registries:methods", "List the methods.", START),
        "show": Command(
            "modnorm.cli.lab:show",
            "Show a run directory or an experiment of a lab.",
            RESULTS,
        ),
        "answers": Command(
            "modnorm.cli.answers:answers",
            "Print the answers of a finished run, with their judgement.",
            RESULTS,
        ),
        "votes": Command(
            "modnorm.cli.answers:votes",
            "Print the votes of a finished run: counts, ties and every expert's vote.",
            RESULTS,
        ),
        "compare": Command(
            "modnorm.cli.compare:compare",
            "Show finished runs side by side, with the differences that prevent a comparison.",
            RESULTS,
        ),
        "view": Command(
            "modnorm.cli.view:view",
            "Serve a web page of run directories: figures, candidates, answers, votes.",
            RESULTS,
        ),
        "analyze": Command(
            "modnorm.cli.analyze:analyze",
            "Write tables and figures of finished runs: scaling, tails, support, agreement, "
            "costs.",
            RESULTS,
        ),
        "rescore": Command(
            "modnorm.cli.rescore:rescore",
            "Judge the stored completions of a finished run by another scorer, without a model.",
            RESULTS,
        ),
        "predict": Command(
            "modnorm.cli.predict:predict",
            "Answer new questions by the vote of an ensemble.",
            RESULTS,
        ),
        "serve": Command(
            "modnorm.cli.serve:serve",
            "Serve an ensemble to OpenAI clients.",
            RESULTS,
        ),
        "export": Command(
            "modnorm.cli.export:export",
            "Write a candidate, or the model that es, mezo or zo_finetuner trained, as a "
            "checkpoint.",
            RESULTS,
        ),
        "rebuild": Command(
            "modnorm.cli.rebuild:rebuild",
            "Write and verify the checkpoints of an exported ensemble.",
            RESULTS,
        ),
        "tune": Command(
            "modnorm.cli.tune:tune",
            "Choose the radius (sigma for randopt) with the best mean ensemble on development "
            "rows.",
            RADIUS,
        ),
        "match": Command(
            "modnorm.cli.match:match",
            "Choose the radius that changes the model as much as isotropic noise does.",
            RADIUS,
        ),
        "scales": Command(
            "modnorm.cli.scales:scales",
            "Print masses and scales of every physical tensor.",
            RADIUS,
        ),
        "calibrate": Command(
            "modnorm.cli.calibrate:calibrate",
            "Calibrate a model's sensitivities and write the profile.",
            RADIUS,
        ),
        "prepare": Command(
            "modnorm.cli.prepare:prepare",
            "Prepare the generator of zo_finetuner on solved puzzles, with gradients, once per "
            "model.",
            RADIUS,
        ),
        "submit": Command(
            "modnorm.cli.lab:submit",
            "Submit an experiment to a lab and print its id; with --wait, follow it.",
            LAB,
        ),
        "watch": Command("modnorm.cli.lab:watch", "Follow an experiment to its end.", LAB),
        "list": Command(
            "modnorm.cli.lab:list_experiments",
            "List the experiments of a lab, newest first.",
            LAB,
        ),
        "cancel": Command("modnorm.cli.lab:cancel", "Ask an experiment to stop.", LAB),
        "token": Command(
            "modnorm.cli.token:app", "Create, list and revoke the tokens that a lab accepts.", LAB
        ),
        "data": Command(
            "modnorm.cli.data:app",
            "List, fetch and check the rows of the paper's benchmarks.",
            MACHINE,
        ),
        "cast": Command(
            "modnorm.cli.cast:cast", "Write a model with its weights in another dtype.", MACHINE
        ),
        "doctor": Command(
            "modnorm.cli.doctor:doctor",
            "Check this machine, and a lab if one is named. The exit code is 1 if anything is "
            "broken.",
            MACHINE,
        ),
        "version": Command("modnorm.cli.app:version", "Print the version.", MACHINE),
    }
)
"""All commands, in the order of the help."""


class CommandGroup(TyperGroup):
    """The group of all commands: imports a command on demand, lists commands by heading."""

    @override
    def get_command(self, ctx: "Context", cmd_name: str) -> TyperCommand | TyperGroup | None:
        return _load(cmd_name) if cmd_name in self.commands else None

    @override
    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        for heading in dict.fromkeys(command.heading for command in COMMANDS.values()):
            rows = [
                (name, command.line)
                for name, command in COMMANDS.items()
                if command.heading == heading
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


def _load(name: str) -> TyperCommand | TyperGroup:
    """Import a command."""
    loaded = resolve_name(COMMANDS[name].place)
    if isinstance(loaded, typer.Typer):
        group = get_group(loaded)
        group.name = name
        return group
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name)(loaded)
    return cast("TyperCommand", get_command(app))
