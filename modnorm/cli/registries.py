"""`modnorm tasks` and `modnorm methods`: the names that a spec may have."""

from typing import TypedDict

import typer

from modnorm.cli.console import emit_json
from modnorm.cli.options import Json


class _Task(TypedDict):
    name: str
    scorers: list[str]
    summary: str


def tasks(*, as_json: Json = False) -> None:
    """List the tasks.

    The first scorer of a task is its default. Tasks of installed packages are listed too.
    """
    from modnorm.tasks.registry import scorer_names, task_names, task_summary

    entries = [
        _Task(name=name, scorers=list(scorer_names(name)), summary=task_summary(name))
        for name in task_names()
    ]
    if as_json:
        emit_json(entries)
        return
    for one in entries:
        typer.echo(f"{one['name']:16}{one['summary']}")
        typer.echo(f"{'':16}scorers: {', '.join(one['scorers'])}")


def methods(*, as_json: Json = False) -> None:
    """List the methods.

    A method with a profile calibrates the model's sensitivities before its first run. A method
    with low-rank noise takes `rank` and `target_modules`.
    """
    from modnorm.perturbation.methods import METHODS

    if as_json:
        emit_json(
            [
                {
                    "name": name,
                    "needs_profile": one.needs_profile,
                    "low_rank": one.low_rank,
                    "summary": one.summary,
                }
                for name, one in METHODS.items()
            ]
        )
        return
    for name, one in METHODS.items():
        profile = " Needs a profile." if one.needs_profile else ""
        rank = " Takes rank and target_modules." if one.low_rank else ""
        typer.echo(f"{name:36}{one.summary}{profile}{rank}")
